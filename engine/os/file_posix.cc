#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ctime>

#include "engine/os/file.h"
#include "engine/os/posix_calls.h"

namespace trafo::os {
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
    if (!was_pending_) take_pending();
    pthread_sigmask(SIG_SETMASK, &previous_, nullptr);
    errno = kept;
  }
  FileSizeSignal(const FileSizeSignal&) = delete;
  FileSizeSignal& operator=(const FileSizeSignal&) = delete;

 private:
  void take_pending() noexcept {
#ifdef __APPLE__
    int number = 0;
    sigset_t pending;
    if (sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 1)
      sigwait(&signal_, &number);
#else
    const timespec now{};
    uninterrupted([&] { return sigtimedwait(&signal_, nullptr, &now); });
#endif
  }

  sigset_t signal_, previous_;
  bool was_pending_;
};

int flags_of(Open how) {
  int flags = has(how, Open::write) ? (has(how, Open::read) ? O_RDWR : O_WRONLY) : O_RDONLY;
  if (has(how, Open::create)) flags |= O_CREAT;
  if (has(how, Open::exclusive)) flags |= O_EXCL;
  if (has(how, Open::append)) flags |= O_APPEND;
  if (has(how, Open::no_follow)) flags |= O_NOFOLLOW;
  if (has(how, Open::directory)) flags |= O_DIRECTORY;
  if (has(how, Open::no_wait)) flags |= O_NONBLOCK | O_NOCTTY;
  return flags;
}

void read_status(const struct stat& from, FileStatus& to) {
  using Kind = FileStatus::Kind;
  to.kind = S_ISREG(from.st_mode)   ? Kind::regular
            : S_ISDIR(from.st_mode) ? Kind::directory
            : S_ISLNK(from.st_mode) ? Kind::link
                                    : Kind::other;
  to.size = static_cast<uint64_t>(from.st_size);
  to.names = from.st_nlink;
#ifdef __APPLE__
  const timespec& modified = from.st_mtimespec;
#else
  const timespec& modified = from.st_mtim;
#endif
  to.modified_seconds = modified.tv_sec;
  to.modified_nanoseconds = modified.tv_nsec;
  to.is_own = from.st_uid == ::geteuid();
  to.is_private = (from.st_mode & (S_IRWXG | S_IRWXO)) == 0;
}

}  // namespace

int away_from_streams(int fd) noexcept {
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  const int moved = ::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int reason = errno;
  ::close(fd);
  errno = reason;
  return moved;
}

int open_file_at(int directory, const char* path, int flags, unsigned mode) noexcept {
  const int fd = away_from_streams(uninterrupted(
      [&] { return ::openat(directory, path, flags | O_CLOEXEC, static_cast<mode_t>(mode)); }));
  if (fd >= 0 && (flags & O_CREAT) != 0) give_owner_access(fd);
  return fd;
}

int open_file(PathRef path, Open how, NewFile permissions) noexcept {
  return open_file_at(AT_FDCWD, c_str(path), flags_of(how), static_cast<unsigned>(permissions));
}

int open_nameless_file(const std::filesystem::path& prefix) {
  std::string path = prefix.string() + "XXXXXX";
  const int fd = away_from_streams(::mkostemp(path.data(), O_CLOEXEC));
  if (fd >= 0) ::unlink(path.c_str());
  return fd;
}

int close_file(int file) noexcept {
  return ::close(file);
}

int duplicate_file(int file) noexcept {
  return ::fcntl(file, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
}

ptrdiff_t read_some(int file, void* bytes, size_t count) noexcept {
  return uninterrupted([&] { return ::read(file, bytes, count); });
}

ptrdiff_t read_at(int file, void* bytes, size_t count, uint64_t offset) noexcept {
  return uninterrupted([&] { return ::pread(file, bytes, count, static_cast<off_t>(offset)); });
}

ptrdiff_t write_some(int file, const void* bytes, size_t count) noexcept {
  rlimit limit;
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY)
    return uninterrupted([&] { return ::write(file, bytes, count); });
  const FileSizeSignal blocked;
  return uninterrupted([&] { return ::write(file, bytes, count); });
}

int wait_for_input(int file, int milliseconds) noexcept {
  pollfd polled{file, POLLIN, 0};
  return ::poll(&polled, 1, milliseconds);
}

int truncate_file(int file, uint64_t size) noexcept {
  return uninterrupted([&] { return ::ftruncate(file, static_cast<off_t>(size)); });
}

int seek_to_end(int file) noexcept {
  return ::lseek(file, 0, SEEK_END) < 0 ? -1 : 0;
}

// fsync may be repeated after an interruption, unlike after EIO.
int sync_file(int file) noexcept {
  return uninterrupted([&] { return ::fsync(file); });
}

int lock_file(int file) noexcept {
  return uninterrupted([&] { return ::flock(file, LOCK_EX | LOCK_NB); });
}

int file_status(int file, FileStatus& status) noexcept {
  struct stat found;
  if (::fstat(file, &found) != 0) return -1;
  read_status(found, status);
  return 0;
}

int status_of(PathRef path, FileStatus& status) noexcept {
  struct stat found;
  if (::stat(c_str(path), &found) != 0) return -1;
  read_status(found, status);
  return 0;
}

int link_status_of(PathRef path, FileStatus& status) noexcept {
  struct stat found;
  if (::lstat(c_str(path), &found) != 0) return -1;
  read_status(found, status);
  return 0;
}

std::FILE* open_stream(PathRef path) noexcept {
  return std::fopen(c_str(path), "ab");
}

int empty_stream(std::FILE* stream) noexcept {
  FileStatus status;
  const int file = ::fileno(stream);
  if (file_status(file, status) != 0) return -1;
  return status.kind == FileStatus::Kind::regular ? truncate_file(file, 0) : 0;
}

std::string read_system_file(const char* path) {
  std::string text;
  const int fd = open_file(path, Open::read);
  if (fd < 0) return text;
  try {
    // The kernel says a size of 0, and some of its files are read whole or not at all.
    for (size_t size = 0; size < kLargestSystemFile;) {
      text.resize(size + 65536);
      const ptrdiff_t count = read_some(fd, text.data() + size, 65536);
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

}  // namespace trafo::os
