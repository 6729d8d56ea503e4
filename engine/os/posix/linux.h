// Parts of *_posix.cc that differ among systems, for Linux.
#pragma once

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>

#include "engine/os/posix/linux_and_wasm.h"

namespace trafo::os {

// Makes a file as long as this, and has the disk's blocks for it. Returns an errno.
inline int reserve_on_disk(int file, size_t bytes) noexcept {
  return ::posix_fallocate(file, 0, static_cast<off_t>(bytes));
}

inline void zero_private_pages(void* begin, size_t bytes) noexcept {
  ::madvise(begin, bytes, MADV_DONTNEED);
}

inline int64_t unused_memory() noexcept {
  return 0;  // /proc/meminfo has it
}

// The GNU C library cuts the heap of a thread out of a mapping twice its size.
inline constexpr int64_t kThreadHeapBytes = int64_t{64} << 20;

inline int rename_unless_there(const char* from, const char* to) noexcept {
  constexpr unsigned kNoReplace = 1;  // RENAME_NOREPLACE; musl declares neither it nor renameat2
  return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, kNoReplace));
}

// As the kernel writes it. Not every C library declares it.
struct KernelEntry {
  uint64_t inode;
  int64_t offset;
  unsigned short d_reclen;
  unsigned char type;
  char d_name[1];
};
inline ssize_t read_entries(int directory, char* entries, size_t bytes) noexcept {
  return ::syscall(SYS_getdents64, directory, entries, bytes);
}

inline bool fill_randomly(void* bytes, size_t count) noexcept {
  return ::getrandom(bytes, count, 0) == static_cast<ssize_t>(count);
}

inline const char* secure_variable(const char* name) noexcept {
  return ::secure_getenv(name);
}

inline void name_this_thread(const char* name) noexcept {
  pthread_setname_np(pthread_self(), name);
}

}  // namespace trafo::os
