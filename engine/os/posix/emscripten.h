// Parts of *_posix.cc that differ among systems, for WebAssembly. engine/os/wasm replaces the files
// that need more of them.
#pragma once

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>

#include "engine/os/posix/linux_and_wasm.h"

namespace trafo::os {

// Its file systems have no such call and no hard links. A page is the only process there.
inline int rename_unless_there(const char* from, const char* to) noexcept {
  struct stat found;
  if (::lstat(to, &found) != 0) return ::rename(from, to);
  errno = EEXIST;
  return -1;
}

using KernelEntry = struct dirent64;
inline ssize_t read_entries(int directory, char* entries, size_t bytes) noexcept {
  return ::getdents64(directory, reinterpret_cast<KernelEntry*>(entries), bytes);
}

}  // namespace trafo::os
