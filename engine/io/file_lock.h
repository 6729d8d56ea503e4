// One process at a time on one run directory.
#pragma once

#include <filesystem>

#include "engine/io/descriptor.h"

namespace trafo {

// Holds an flock on DIRECTORY/.lock while it lives; the kernel lets go when the process dies,
// however it dies, so there is no stale lock to clean up. The file stays behind and holds the
// holder's process id as text.
class DirectoryLock {
 public:
  // Errors: IO "in use by process PID" when another process (or another object of this one) holds
  // it; IO when the directory is missing or not writable, or when .lock is a link, has a second
  // name, or is no regular file.
  explicit DirectoryLock(const std::filesystem::path& directory);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

 private:
  Descriptor file_;
};

}  // namespace trafo
