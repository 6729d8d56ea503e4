#include "engine/io/file_lock.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>

#include "engine/os/process.h"

namespace trafo {
namespace {

std::string holder_of(const Descriptor& file) {
  std::array<std::byte, 24> text;
  const size_t count = file.read_at(0, text);
  std::string pid;
  for (size_t i = 0; i < count; ++i) {
    const char digit = static_cast<char>(text[i]);
    if (digit < '0' || digit > '9') break;
    pid += digit;
  }
  return pid.empty() ? "another process" : "process " + pid;
}

// Empty, or a process id and a line end; shorter where the process was killed, and zeros where the
// power failed before the text was on the disk.
bool is_lock_file(const Descriptor& file, uint64_t size) {
  std::array<std::byte, 24> text;
  if (size >= text.size()) return false;
  const size_t count = file.read_at(0, text);
  return std::all_of(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(count),
                     [](std::byte byte) {
                       const char c = static_cast<char>(byte);
                       return (c >= '0' && c <= '9') || c == '\n' || c == '\0';
                     });
}

}  // namespace

DirectoryLock::DirectoryLock(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / ".lock";
  file_ = try_open(
      path, os::Open::read_write | os::Open::create | os::Open::no_follow | os::Open::no_wait);
  if (!file_.is_open()) fail_errno(errno, "lock_directory", "cannot open", path);
  os::FileStatus status;
  if (os::file_status(file_.fd(), status) != 0)
    fail_errno(errno, "lock_directory", "cannot examine", path);
  // The lock file is truncated and written. With a second name, another file would be destroyed.
  require(status.kind == os::FileStatus::Kind::regular && status.names == 1, ErrorCode::io,
          "lock_directory", path.string(),
          " is no file of its own: it is special or has a second name; remove it");
  if (os::lock_file(file_.fd()) != 0) {
    const int reason = errno;
    if (reason == EWOULDBLOCK)
      fail(ErrorCode::io, "lock_directory", directory.string(), " is in use by ", holder_of(file_),
           "; only one process may write to a run directory");
    if (!os::is_unsupported(reason)) fail_errno(reason, "lock_directory", "cannot lock", path);
    is_held_ = false;
  }
  require(is_lock_file(file_, status.size), ErrorCode::invalid_argument, "lock_directory",
          path.string(), " was not written by a run, which would overwrite it: move it away");
  const std::string pid = concat(os::process_id(), "\n");
  if (os::truncate_file(file_.fd(), 0) != 0)
    fail_errno(errno, "lock_directory", "cannot write", path);
  file_.write_all(std::as_bytes(std::span(pid.data(), pid.size())));
  is_durable_ = file_.sync();
}

DirectoryLock::~DirectoryLock() {
  // The file must stay: unlinking it would let two processes lock two files of the same name.
  os::truncate_file(file_.fd(), 0);
}

}  // namespace trafo
