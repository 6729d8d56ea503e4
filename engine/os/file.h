// Open files and directories. They are numbers, as descriptors of POSIX are; functions return -1
// with an errno on failure, on Windows as well. Behaviour does not depend on settings of the
// process: closed standard streams, umask, the limit of file sizes. Programs that are started do
// not inherit descriptors. A call that a signal interrupted is repeated.
// tests/reliability/io_faults.h makes each of the system calls of engine/os/file_posix.cc and
// names_posix.cc fail.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

#include "engine/os/path_ref.h"

namespace trafo::os {

inline constexpr int kStandardInput = 0, kStandardOutput = 1, kStandardError = 2;

enum class Open : unsigned {
  read = 1,
  write = 2,
  read_write = 3,
  create = 4,      // makes the file if there is none
  exclusive = 8,   // with `create`: EEXIST if there is anything of that name, also a symbolic link
  append = 16,     // writes go to the end
  no_follow = 32,  // ELOOP if the last part of the path is a symbolic link
  directory = 64,  // ENOTDIR if it is none
  no_wait = 128,   // does not wait for the other end of a FIFO, and takes no terminal
};
constexpr Open operator|(Open one, Open other) {
  return static_cast<Open>(static_cast<unsigned>(one) | static_cast<unsigned>(other));
}
constexpr bool has(Open how, Open bit) {
  return (static_cast<unsigned>(how) & static_cast<unsigned>(bit)) != 0;
}

// Permissions of a new file. A umask may keep it from others, but not from its owner, who could
// never open it again.
enum class NewFile : unsigned { for_everybody = 0666, for_owner = 0600 };

// The descriptor is above those of the standard streams: if the process has closed one, everything
// it prints would go into the file.
int open_file(PathRef path, Open how, NewFile permissions = NewFile::for_everybody) noexcept;
// A new empty file for reading and writing, without a name: the system removes it when it is
// closed. `prefix` is the path of a name beside which it is made. Throws std::bad_alloc.
int open_nameless_file(const std::filesystem::path& prefix);
int close_file(int file) noexcept;  // always releases the descriptor
// Another descriptor of the same open file, with the same lock.
int duplicate_file(int file) noexcept;

// Reads or writes up to `count` bytes; 0: the end of the file. write_some: EFBIG at the limit of
// file sizes, without the signal that ends a process which does not handle it.
ptrdiff_t read_some(int file, void* bytes, size_t count) noexcept;
ptrdiff_t read_at(int file, void* bytes, size_t count, uint64_t offset) noexcept;
ptrdiff_t write_some(int file, const void* bytes, size_t count) noexcept;
// Waits until a pipe or terminal has bytes, or has ended. 1: read_some() does not wait; 0: the time
// has passed; -1: an error, or a signal came.
int wait_for_input(int file, int milliseconds) noexcept;

int truncate_file(int file, uint64_t size) noexcept;
int seek_to_end(int file) noexcept;
int sync_file(int file) noexcept;  // makes bytes durable; of a directory, its names
// Locks a file or directory against other descriptors; does not wait: EWOULDBLOCK if it is locked.
// The lock ends with the last descriptor of the open file, also if the process is killed.
int lock_file(int file) noexcept;
// Whether an errno says that the file system lacks an operation, such as locks on Lustre or on NFS
// without a lock daemon, or sync_file() of a directory.
inline bool is_unsupported(int error) noexcept {
  return error == ENOSYS || error == EOPNOTSUPP || error == ENOLCK || error == EINVAL;
}

struct FileStatus {
  enum class Kind { regular, directory, link, other };
  Kind kind = Kind::other;
  uint64_t size = 0;   // bytes
  uint64_t names = 0;  // hard links; 0: it was removed
  int64_t modified_seconds = 0, modified_nanoseconds = 0;
  bool is_own = false;      // belongs to the user of the process
  bool is_private = false;  // nobody else may open it
};
int file_status(int file, FileStatus& status) noexcept;
int status_of(PathRef path, FileStatus& status) noexcept;       // follows symbolic links
int link_status_of(PathRef path, FileStatus& status) noexcept;  // does not

// A stream that makes a file or appends to it. Null: errno has the reason.
std::FILE* open_stream(PathRef path) noexcept;
// Empties the file of a stream to which nothing was written yet. A pipe or device stays as it is.
int empty_stream(std::FILE* stream) noexcept;

// A file of the kernel, such as /proc/meminfo; empty if it cannot be read.
std::string read_system_file(const char* path);

}  // namespace trafo::os
