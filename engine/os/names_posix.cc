#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif

#include <cstdint>
#include <cstdio>

#include "engine/os/file.h"
#include "engine/os/names.h"
#include "engine/os/posix_calls.h"

namespace trafo::os {

std::filesystem::path path_of(const std::string& text) {
  return text;
}

int rename_replacing(PathRef from, PathRef to) noexcept {
  return ::rename(c_str(from), c_str(to));
}

namespace {

#if defined(__linux__)
constexpr unsigned kNoReplace = 1;  // RENAME_NOREPLACE; musl declares neither it nor renameat2
int rename_unless_there(const char* from, const char* to) noexcept {
  return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, kNoReplace));
}
#elif defined(__APPLE__)
int rename_unless_there(const char* from, const char* to) noexcept {
  return ::renamex_np(from, to, RENAME_EXCL);
}
#endif

}  // namespace

#ifdef __EMSCRIPTEN__
// Its file systems have no such call and no hard links. A page is the only process there.
int rename_new(PathRef from, PathRef to) noexcept {
  struct stat found;
  if (::lstat(c_str(to), &found) != 0) return ::rename(c_str(from), c_str(to));
  errno = EEXIST;
  return -1;
}
#else
int rename_new(PathRef from, PathRef to) noexcept {
  if (rename_unless_there(c_str(from), c_str(to)) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP) return -1;
  // A file system that cannot refuse by itself may have hard links.
  if (::link(c_str(from), c_str(to)) != 0) {
    if (errno == EPERM) errno = EOPNOTSUPP;
    return -1;
  }
  return ::unlink(c_str(from));
}
#endif

int remove_file(PathRef path) noexcept {
  return ::unlink(c_str(path));
}

int make_directory(PathRef path) noexcept {
  const char* const name = c_str(path);
  if (::mkdir(name, 0777) != 0) return -1;
  struct stat status;
  if (::lstat(name, &status) == 0 && S_ISDIR(status.st_mode) &&
      (status.st_mode & S_IRWXU) != S_IRWXU) {
    const mode_t owned = (status.st_mode & 07777) | S_IRWXU;
    // glibc before 2.32 has no AT_SYMLINK_NOFOLLOW here.
    if (::fchmodat(AT_FDCWD, name, owned, AT_SYMLINK_NOFOLLOW) != 0 && errno == ENOTSUP)
      ::fchmodat(AT_FDCWD, name, owned, 0);
  }
  return 0;
}

int remove_directory(PathRef path) noexcept {
  return ::rmdir(c_str(path));
}

namespace {

#if defined(__linux__)
// As the kernel writes it. Not every C library declares it.
struct KernelEntry {
  uint64_t inode;
  int64_t offset;
  unsigned short d_reclen;
  unsigned char type;
  char d_name[1];
};
ssize_t read_entries(int directory, char* entries, size_t bytes) noexcept {
  return ::syscall(SYS_getdents64, directory, entries, bytes);
}
#elif defined(__EMSCRIPTEN__)
using KernelEntry = struct dirent64;
ssize_t read_entries(int directory, char* entries, size_t bytes) noexcept {
  return ::getdents64(directory, reinterpret_cast<KernelEntry*>(entries), bytes);
}
#elif defined(__APPLE__)
using KernelEntry = struct dirent;
// In the system's library, but in no header: what readdir calls.
extern "C" ssize_t __getdirentries64(int directory, void* entries, size_t bytes, off_t* position);
ssize_t read_entries(int directory, char* entries, size_t bytes) noexcept {
  off_t position = 0;
  return __getdirentries64(directory, entries, bytes, &position);
}
#endif

// Removes an entry of a directory with all that is in it, without allocating: it also cleans up
// after a failure for lack of memory. std::filesystem::remove_all ends the process if it cannot
// allocate a path, and opendir fails.
int remove_entry(int directory, const char* name) noexcept {
  if (::unlinkat(directory, name, 0) == 0 || errno == ENOENT) return 0;
  if (errno != EISDIR && errno != EPERM) return -1;
  const int fd = open_file_at(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
  if (fd < 0) return -1;
  alignas(KernelEntry) char entries[2048];  // one on the stack for each level
  int result = 0;
  while (result == 0) {
    const ssize_t bytes = read_entries(fd, entries, sizeof entries);
    if (bytes <= 0) {
      result = bytes == 0 ? 0 : -1;
      break;
    }
    for (ssize_t at = 0; at < bytes && result == 0;) {
      const auto* entry = reinterpret_cast<const KernelEntry*>(entries + at);
      const std::string_view found = static_cast<const char*>(entry->d_name);
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

int remove_tree(PathRef path) noexcept {
  return remove_entry(AT_FDCWD, c_str(path));
}

DirectoryReader::DirectoryReader(PathRef path) noexcept {
  do state_ = ::opendir(c_str(path));
  while (state_ == nullptr && errno == EINTR);
}

DirectoryReader::~DirectoryReader() {
  if (state_ != nullptr) ::closedir(static_cast<DIR*>(state_));
}

bool DirectoryReader::next(std::string& name) {
  errno = 0;
  while (const struct dirent* entry = ::readdir(static_cast<DIR*>(state_))) {
    name = entry->d_name;
    if (name != "." && name != "..") return true;
    errno = 0;
  }
  return false;
}

bool can_read(PathRef path) noexcept {
  return ::access(c_str(path), R_OK) == 0;
}

bool can_make_files_in(PathRef folder) noexcept {
  return ::access(c_str(folder), W_OK | X_OK) == 0;
}

}  // namespace trafo::os
