// Parts of *_posix.cc that Linux and WebAssembly have in common.
#pragma once

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

namespace trafo::os {

inline const timespec& modified_time(const struct stat& status) {
  return status.st_mtim;
}

// fsync may be repeated after an interruption, unlike after EIO.
inline int sync_to_disk(int file) noexcept {
  return ::fsync(file);
}

// Bytes of a write that the limit of file sizes has room for. The kernel counts them itself, and
// sends SIGXFSZ to the thread that writes.
inline size_t room_for_write(int, size_t count, uint64_t) noexcept {
  return count;
}

// Removes a pending signal of a set that this thread blocks. -1 with EINTR: to be repeated.
inline int take_pending_signal(const sigset_t& signals, int) noexcept {
  const timespec now{};
  return ::sigtimedwait(&signals, nullptr, &now);
}

}  // namespace trafo::os
