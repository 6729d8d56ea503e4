// One process at a time on one run directory.
#pragma once

#include <filesystem>

#include "engine/io/descriptor.h"

namespace trafo {

// Holds a lock on DIRECTORY/.lock. The system releases it when the process ends in any way, so
// there are no stale locks. The file stays and has the process id of the holder as text.
class DirectoryLock {
 public:
  // Errors: IO "in use by process PID" if another process, or another object of this one, holds it.
  // IO if the directory is missing or not writable, or if .lock is a link, has a second name or is
  // no regular file. INVALID_ARGUMENT if its text is no process id: it is somebody else's file.
  // A file system without locks is no error: is_held() says so.
  explicit DirectoryLock(const std::filesystem::path& directory);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

  bool is_held() const { return is_held_; }
  // Whether the file system can make the text of files durable.
  bool is_durable() const { return is_durable_; }

 private:
  Descriptor file_;
  bool is_held_ = true, is_durable_ = true;
};

}  // namespace trafo
