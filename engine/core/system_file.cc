#include "engine/core/system_file.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ctime>

namespace trafo {
namespace {

constexpr size_t kLargestSystemFile = size_t{64} << 20;

void give_owner_access(int fd) noexcept {
  struct stat status;
  constexpr mode_t kOwner = S_IRUSR | S_IWUSR;
  if (::fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && (status.st_mode & kOwner) != kOwner)
    ::fchmod(fd, (status.st_mode & 07777) | kOwner);
}

// Blocks SIGXFSZ on this thread and removes the one that a write has raised: the kernel sends it to
// the thread that writes.
class FileSizeSignal {
 public:
  FileSizeSignal() noexcept {
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    sigset_t pending;
    was_pending_ = sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 1;
    pthread_sigmask(SIG_BLOCK, &signal_, &previous_);
  }
  ~FileSizeSignal() {
    const int kept = errno;
    const timespec now{};
    if (!was_pending_) uninterrupted([&] { return sigtimedwait(&signal_, nullptr, &now); });
    pthread_sigmask(SIG_SETMASK, &previous_, nullptr);
    errno = kept;
  }
  FileSizeSignal(const FileSizeSignal&) = delete;
  FileSizeSignal& operator=(const FileSizeSignal&) = delete;

 private:
  sigset_t signal_, previous_;
  bool was_pending_;
};

}  // namespace

int away_from_streams(int fd) noexcept {
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  const int moved = ::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int reason = errno;
  ::close(fd);
  errno = reason;
  return moved;
}

int open_file_at(int directory, const char* path, int flags, mode_t mode) noexcept {
  const int fd = away_from_streams(
      uninterrupted([&] { return ::openat(directory, path, flags | O_CLOEXEC, mode); }));
  if (fd >= 0 && (flags & O_CREAT) != 0) give_owner_access(fd);
  return fd;
}

int open_file(const char* path, int flags, mode_t mode) noexcept {
  return open_file_at(AT_FDCWD, path, flags, mode);
}

ssize_t write_some(int fd, const void* bytes, size_t count) noexcept {
  rlimit limit;
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY)
    return uninterrupted([&] { return ::write(fd, bytes, count); });
  const FileSizeSignal blocked;
  return uninterrupted([&] { return ::write(fd, bytes, count); });
}

std::string read_system_file(const char* path) {
  std::string text;
  const int fd = open_file(path, O_RDONLY);
  if (fd < 0) return text;
  try {
    // The kernel says a size of 0, and some of its files are read whole or not at all.
    for (size_t size = 0; size < kLargestSystemFile;) {
      text.resize(size + 65536);
      const ssize_t count = uninterrupted([&] { return ::read(fd, text.data() + size, 65536); });
      size += count > 0 ? static_cast<size_t>(count) : 0;
      text.resize(size);
      if (count <= 0) break;
    }
  } catch (...) {
    ::close(fd);
    throw;
  }
  ::close(fd);
  return text;
}

}  // namespace trafo
