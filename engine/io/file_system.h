// The system calls of engine/io. Results and errno are the kernel's. A call that a signal
// interrupted is repeated, except close(), which always releases the descriptor. Opening and
// writing are as in core/system_file.h. tests/reliability/io_faults.h makes each of these calls
// fail.
#pragma once

#include <dirent.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>
#include <string>

namespace trafo::file_system {

int open_at(int directory, const char* path, int flags, mode_t mode) noexcept;
int close(int fd) noexcept;
ssize_t write(int fd, const void* bytes, size_t count) noexcept;
ssize_t read_at(int fd, void* bytes, size_t count, off_t offset) noexcept;
int truncate(int fd, off_t size) noexcept;
int sync(int fd) noexcept;
int stat(int fd, struct stat* status) noexcept;
int rename(const char* from, const char* to) noexcept;
int unlink(const char* path) noexcept;
int make_directory(const char* path, mode_t mode) noexcept;
int remove_directory(const char* path) noexcept;  // an empty one
int duplicate(int fd) noexcept;                   // close-on-exec, with the same lock
int lock_exclusive(int fd) noexcept;              // does not wait: EWOULDBLOCK if it is held
DIR* open_directory(const char* path) noexcept;
struct dirent* read_directory(DIR* directory) noexcept;  // null: end, or an error if errno != 0
int close_directory(DIR* directory) noexcept;
// Removes a file, or a directory with everything below it. Symbolic links are removed, not
// followed. A missing path is no error. Returns 0, or -1 with errno set.
int remove_tree(const char* path) noexcept;

// Whether an errno says that the file system lacks an operation, as flock on Lustre or on NFS
// without a lock daemon, or fsync of a directory.
bool is_unsupported(int error) noexcept;

pid_t current_process() noexcept;
bool process_is_alive(pid_t pid) noexcept;

}  // namespace trafo::file_system
