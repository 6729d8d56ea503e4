// Opens and writes files independently of what the process has set: closed standard streams, umask
// and the limit of file sizes. Results and errno are the kernel's. A call that a signal interrupted
// is repeated.
#pragma once

#include <sys/types.h>

#include <cerrno>
#include <cstddef>
#include <string>

namespace trafo {

// Repeats a system call that a signal interrupts; returns its result.
template <class Call>
auto uninterrupted(Call call) noexcept {
  for (;;) {
    const auto result = call();
    if (result != -1 || errno != EINTR) return result;
  }
}

// The same file at a descriptor above the standard streams, close-on-exec. If the process has
// closed a stream, a new descriptor may have its number, and everything the process prints would go
// into that file. Returns -1 and closes `fd` if there is no further descriptor.
int away_from_streams(int fd) noexcept;

// openat(2) with close-on-exec and away_from_streams(). A umask may keep a new file from others,
// but not from its owner, who could never open it again.
int open_file_at(int directory, const char* path, int flags, mode_t mode = 0) noexcept;
int open_file(const char* path, int flags, mode_t mode = 0) noexcept;

// write(2). EFBIG at the limit of file sizes (RLIMIT_FSIZE), without the signal SIGXFSZ, which ends
// a process that does not handle it.
ssize_t write_some(int fd, const void* bytes, size_t count) noexcept;

// A file of the kernel, such as /proc/meminfo; empty if it cannot be read.
std::string read_system_file(const char* path);

}  // namespace trafo
