#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

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

int rename_new(PathRef from, PathRef to) noexcept {
  if (rename_unless_there(c_str(from), c_str(to)) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP) return -1;
  // A file system that cannot refuse by itself may have hard links.
  if (with_one_errno(::link(c_str(from), c_str(to))) != 0) {
    if (errno == EPERM) errno = EOPNOTSUPP;
    return -1;
  }
  return ::unlink(c_str(from));
}

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

int remove_entry(int directory, const char* name) noexcept;

// Removes the entries that one pass over a directory finds. The number of them; -1: an error.
int remove_entries(int directory) noexcept {
  alignas(KernelEntry) char entries[2048];  // one on the stack for each level
  int removed = 0;
  for (;;) {
    const ssize_t bytes = read_entries(directory, entries, sizeof entries);
    if (bytes <= 0) return bytes == 0 ? removed : -1;
    for (ssize_t at = 0; at < bytes;) {
      const auto* entry = reinterpret_cast<const KernelEntry*>(entries + at);
      const std::string_view found = static_cast<const char*>(entry->d_name);
      at += entry->d_reclen;
      if (found == "." || found == "..") continue;
      if (remove_entry(directory, entry->d_name) != 0) return -1;
      ++removed;
    }
  }
}

// Removes an entry of a directory with all that is in it, without allocating: it also cleans up
// after a failure for lack of memory. std::filesystem::remove_all ends the process if it cannot
// allocate a path, and opendir fails.
int remove_entry(int directory, const char* name) noexcept {
  if (::unlinkat(directory, name, 0) == 0 || errno == ENOENT) return 0;
  if (errno != EISDIR && errno != EPERM) return -1;
  const int fd = open_file_at(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
  if (fd < 0) return -1;
  int removed = 0, result = -1;
  do {  // a pass that removes entries may miss others on macOS
    removed = remove_entries(fd);
    if (removed >= 0) result = ::unlinkat(directory, name, AT_REMOVEDIR);
  } while (result != 0 && removed > 0 && errno == ENOTEMPTY && ::lseek(fd, 0, SEEK_SET) == 0);
  const int reason = errno;
  ::close(fd);
  errno = reason;
  return result;
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
