// Parts of *_posix.cc that differ among systems, for macOS.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <mach/mach.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace trafo::os {

inline const timespec& modified_time(const struct stat& status) {
  return status.st_mtimespec;
}

// fsync leaves bytes in the cache of the drive. File systems without F_FULLFSYNC, such as those of
// other hosts, have fsync alone.
inline int sync_to_disk(int file) noexcept {
  const int result = ::fcntl(file, F_FULLFSYNC);
  const bool lacks_it = result == -1 && (errno == ENOTSUP || errno == ENOTTY || errno == EINVAL);
  return lacks_it ? ::fsync(file) : result;
}

// Bytes of a write that the limit of file sizes has room for; 0 with EFBIG: none. The kernel sends
// SIGXFSZ to the process, where another thread may not block it.
inline size_t room_for_write(int file, size_t count, uint64_t limit) noexcept {
  struct stat status;
  if (::fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) return count;
  const bool appends = (::fcntl(file, F_GETFL) & O_APPEND) != 0;
  const off_t position = appends ? status.st_size : ::lseek(file, 0, SEEK_CUR);
  if (position < 0) return count;
  const uint64_t at = static_cast<uint64_t>(position);
  if (at >= limit) errno = EFBIG;
  return at >= limit ? 0 : static_cast<size_t>(std::min<uint64_t>(count, limit - at));
}

// Removes a pending signal of a set that this thread blocks. -1 with EINTR: to be repeated.
inline int take_pending_signal(const sigset_t& signals, int number) noexcept {
  sigset_t pending;
  if (::sigpending(&pending) != 0 || sigismember(&pending, number) != 1) return 0;
  return ::sigwait(&signals, &number) == 0 ? 0 : -1;
}

// Makes a file as long as this, and has the disk's blocks for it. Returns an errno.
inline int reserve_on_disk(int file, size_t bytes) noexcept {
  fstore_t store{F_ALLOCATEALL, F_PEOFPOSMODE, 0, static_cast<off_t>(bytes), 0};
  const bool done = ::fcntl(file, F_PREALLOCATE, &store) != -1 &&
                    ::ftruncate(file, static_cast<off_t>(bytes)) == 0;
  return done ? 0 : errno;
}

// MADV_DONTNEED keeps the bytes here: new pages replace these.
inline void zero_private_pages(void* begin, size_t bytes) noexcept {
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
  if (::mmap(begin, bytes, PROT_READ | PROT_WRITE, kFlags, -1, 0) == MAP_FAILED)
    std::memset(begin, 0, bytes);
}

// Free pages, and pages that the system takes away first.
inline int64_t unused_memory() noexcept {
  vm_statistics64_data_t pages{};
  mach_msg_type_number_t count = HOST_VM_INFO64_COUNT;
  const mach_port_t host = ::mach_host_self();
  const kern_return_t result =
      ::host_statistics64(host, HOST_VM_INFO64, reinterpret_cast<host_info64_t>(&pages), &count);
  ::mach_port_deallocate(::mach_task_self(), host);
  if (result != KERN_SUCCESS) return 0;
  return (int64_t{pages.free_count} + pages.inactive_count) * ::sysconf(_SC_PAGE_SIZE);
}

inline constexpr int64_t kThreadHeapBytes = 0;

inline int rename_unless_there(const char* from, const char* to) noexcept {
  return ::renamex_np(from, to, RENAME_EXCL);
}

using KernelEntry = struct dirent;
// In the system's library, but in no header: readdir calls it.
extern "C" ssize_t __getdirentries64(int directory, void* entries, size_t bytes, off_t* position);
inline ssize_t read_entries(int directory, char* entries, size_t bytes) noexcept {
  off_t position = 0;
  return __getdirentries64(directory, entries, bytes, &position);
}

inline bool fill_randomly(void* bytes, size_t count) noexcept {
  ::arc4random_buf(bytes, count);
  return true;
}

inline const char* secure_variable(const char* name) noexcept {
  return ::issetugid() != 0 ? nullptr : std::getenv(name);
}

inline void name_this_thread(const char* name) noexcept {
  pthread_setname_np(name);
}

}  // namespace trafo::os
