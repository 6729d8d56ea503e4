// Parts that the files *_posix.cc of this folder share.
#pragma once

#include <cerrno>

#include "engine/os/path_ref.h"
#if defined(__APPLE__)
#include "engine/os/posix/apple.h"
#elif defined(__EMSCRIPTEN__)
#include "engine/os/posix/emscripten.h"
#else
#include "engine/os/posix/linux.h"
#endif

namespace trafo::os {

// Repeats a system call that a signal interrupts; returns its result.
template <class Call>
auto uninterrupted(Call call) noexcept {
  for (;;) {
    const auto result = call();
    if (result != -1 || errno != EINTR) return result;
  }
}

// Makes one errno of two that say that a file system lacks an operation, which are one on Linux:
// is_unsupported() knows EOPNOTSUPP. Returns the result of the system call.
inline int with_one_errno(int result) noexcept {
  if (result == -1 && errno == ENOTSUP) errno = EOPNOTSUPP;
  return result;
}

// The same file at a descriptor above the standard streams, close-on-exec. If the process has
// closed a stream, a new descriptor may have its number. Returns -1 and closes `fd` if there is no
// further descriptor.
int away_from_streams(int fd) noexcept;

// open_file() for a path that begins at a directory. `flags` and `mode` are those of openat(2).
int open_file_at(int directory, const char* path, int flags, unsigned mode) noexcept;

inline const char* c_str(PathRef path) {
  return path.text() != nullptr ? path.text() : path.native();
}

}  // namespace trafo::os
