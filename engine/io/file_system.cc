#include "engine/io/file_system.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string_view>

#include "engine/core/system_file.h"

namespace trafo::file_system {

int open_at(int directory, const char* path, int flags, mode_t mode) noexcept {
  return open_file_at(directory, path, flags, mode);
}
int close(int fd) noexcept {
  return ::close(fd);
}
ssize_t write(int fd, const void* bytes, size_t count) noexcept {
  return write_some(fd, bytes, count);
}
ssize_t read_at(int fd, void* bytes, size_t count, off_t offset) noexcept {
  return uninterrupted([&] { return ::pread(fd, bytes, count, offset); });
}
int truncate(int fd, off_t size) noexcept {
  return uninterrupted([&] { return ::ftruncate(fd, size); });
}
// fsync may be repeated after an interruption, unlike after EIO.
int sync(int fd) noexcept {
  return uninterrupted([&] { return ::fsync(fd); });
}
int stat(int fd, struct stat* status) noexcept {
  return ::fstat(fd, status);
}
int rename(const char* from, const char* to) noexcept {
  return ::rename(from, to);
}
int unlink(const char* path) noexcept {
  return ::unlink(path);
}
int make_directory(const char* path, mode_t mode) noexcept {
  if (::mkdir(path, mode) != 0) return -1;
  // A umask may keep the directory from others, but not from its owner.
  struct stat status;
  if (::lstat(path, &status) == 0 && S_ISDIR(status.st_mode) &&
      (status.st_mode & S_IRWXU) != S_IRWXU) {
    const mode_t owned = (status.st_mode & 07777) | S_IRWXU;
    // glibc before 2.32 has no AT_SYMLINK_NOFOLLOW here.
    if (::fchmodat(AT_FDCWD, path, owned, AT_SYMLINK_NOFOLLOW) != 0 && errno == ENOTSUP)
      ::fchmodat(AT_FDCWD, path, owned, 0);
  }
  return 0;
}
int remove_directory(const char* path) noexcept {
  return ::rmdir(path);
}
int duplicate(int fd) noexcept {
  return ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
}
int lock_exclusive(int fd) noexcept {
  return uninterrupted([&] { return ::flock(fd, LOCK_EX | LOCK_NB); });
}
DIR* open_directory(const char* path) noexcept {
  for (;;) {
    DIR* directory = ::opendir(path);
    if (directory != nullptr || errno != EINTR) return directory;
  }
}
struct dirent* read_directory(DIR* directory) noexcept {
  errno = 0;
  return ::readdir(directory);
}
int close_directory(DIR* directory) noexcept {
  return ::closedir(directory);
}

namespace {

// Removes an entry of a directory with all that is in it, without allocating: it also cleans up
// after a failure for lack of memory. std::filesystem::remove_all ends the process if it cannot
// allocate a path, and opendir fails.
int remove_entry(int directory, const char* name) noexcept {
  if (::unlinkat(directory, name, 0) == 0 || errno == ENOENT) return 0;
  if (errno != EISDIR && errno != EPERM) return -1;
  const int fd = open_at(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
  if (fd < 0) return -1;
  alignas(struct dirent64) char entries[2048];  // one on the stack for each level
  int result = 0;
  while (result == 0) {
    const ssize_t bytes = ::getdents64(fd, entries, sizeof entries);
    if (bytes <= 0) {
      result = bytes == 0 ? 0 : -1;
      break;
    }
    for (ssize_t at = 0; at < bytes && result == 0;) {
      const auto* entry = reinterpret_cast<const struct dirent64*>(entries + at);
      const std::string_view found = entry->d_name;
      if (found != "." && found != "..") result = remove_entry(fd, entry->d_name);
      at += entry->d_reclen;
    }
  }
  const int reason = errno;
  ::close(fd);
  errno = reason;
  return result == 0 ? ::unlinkat(directory, name, AT_REMOVEDIR) : -1;
}

}  // namespace

int remove_tree(const char* path) noexcept {
  return remove_entry(AT_FDCWD, path);
}

bool is_unsupported(int error) noexcept {
  return error == ENOSYS || error == EOPNOTSUPP || error == ENOLCK || error == EINVAL;
}

pid_t current_process() noexcept {
  return ::getpid();
}

bool process_is_alive(pid_t pid) noexcept {
  // EPERM: the process exists and belongs to another user.
  return ::kill(pid, 0) == 0 || errno != ESRCH;
}

}  // namespace trafo::file_system
