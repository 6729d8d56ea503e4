#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>

#include "engine/os/file.h"
#include "engine/os/posix_calls.h"

namespace trafo::os {
namespace {

constexpr size_t kLargestSystemFile = size_t{64} << 20;
// Linux reads and writes no more at once, and macOS refuses to.
constexpr size_t kMostAtOnce = 0x7FFFF000;

void give_owner_access(int fd) noexcept {
  struct stat status;
  constexpr mode_t kOwner = S_IRUSR | S_IWUSR;
  if (::fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && (status.st_mode & kOwner) != kOwner)
    ::fchmod(fd, (status.st_mode & 07777) | kOwner);
}

// Blocks SIGXFSZ on this thread and removes the one that a write has raised.
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
    if (!was_pending_) uninterrupted([&] { return take_pending_signal(signal_, SIGXFSZ); });
    pthread_sigmask(SIG_SETMASK, &previous_, nullptr);
    errno = kept;
  }
  FileSizeSignal(const FileSizeSignal&) = delete;
  FileSizeSignal& operator=(const FileSizeSignal&) = delete;

 private:
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
  const timespec& modified = modified_time(from);
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
  return uninterrupted([&] { return ::read(file, bytes, std::min(count, kMostAtOnce)); });
}

ptrdiff_t read_at(int file, void* bytes, size_t count, uint64_t offset) noexcept {
  const size_t most = std::min(count, kMostAtOnce);
  return uninterrupted([&] { return ::pread(file, bytes, most, static_cast<off_t>(offset)); });
}

ptrdiff_t write_some(int file, const void* bytes, size_t count) noexcept {
  rlimit limit{RLIM_INFINITY, RLIM_INFINITY};
  count = std::min(count, kMostAtOnce);
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY)
    return uninterrupted([&] { return ::write(file, bytes, count); });
  const FileSizeSignal blocked;
  const size_t room = room_for_write(file, count, limit.rlim_cur);
  if (room == 0 && count > 0) return -1;
  return uninterrupted([&] { return ::write(file, bytes, room); });
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

int sync_file(int file) noexcept {
  return with_one_errno(uninterrupted([&] { return sync_to_disk(file); }));
}

int lock_file(int file) noexcept {
  return with_one_errno(uninterrupted([&] { return ::flock(file, LOCK_EX | LOCK_NB); }));
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
