#include "engine/io/descriptor.h"

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "engine/core/cancel_scope.h"
#include "engine/os/names.h"

namespace trafo {
namespace {

constexpr size_t kLargestTransfer = size_t{1} << 24;  // between two looks at the cancel token

Descriptor open_directory_for_sync(const std::filesystem::path& path) {
  Descriptor directory = try_open(path, os::Open::read | os::Open::directory);
  if (!directory.is_open()) fail_errno(errno, "sync_directory", "cannot open directory", path);
  return directory;
}

}  // namespace

void fail_errno(int error, std::string_view origin, std::string_view action,
                const std::filesystem::path& path) {
  // std::generic_category().message is strerror without its shared buffer.
  fail(error == ENOMEM ? ErrorCode::out_of_memory : ErrorCode::io, origin, action, " ",
       path.string(), ": ", std::generic_category().message(error));
}

Descriptor::Descriptor(Descriptor&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) os::close_file(fd_);
    fd_ = std::exchange(other.fd_, -1);
    path_ = std::move(other.path_);
  }
  return *this;
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) os::close_file(fd_);
}

uint64_t Descriptor::size() const {
  os::FileStatus status;
  if (os::file_status(fd_, status) != 0) fail_errno(errno, "file", "cannot examine", path_);
  return status.size;
}

void Descriptor::write_all(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    stop_if_call_is_cancelled("write_file");
    const ptrdiff_t written =
        os::write_some(fd_, bytes.data(), std::min(bytes.size(), kLargestTransfer));
    if (written < 0) fail_errno(errno, "write_file", "cannot write", path_);
    if (written == 0) fail_errno(EIO, "write_file", "no byte was taken by", path_);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

size_t Descriptor::read_at(uint64_t offset, std::span<std::byte> bytes) const {
  size_t done = 0;
  while (done < bytes.size()) {
    stop_if_call_is_cancelled("read_file");
    const ptrdiff_t count = os::read_at(
        fd_, bytes.data() + done, std::min(bytes.size() - done, kLargestTransfer), offset + done);
    if (count < 0) fail_errno(errno, "read_file", "cannot read", path_);
    if (count == 0) break;
    done += static_cast<size_t>(count);
  }
  return done;
}

bool Descriptor::sync() {
  if (os::sync_file(fd_) == 0) return true;
  if (!os::is_unsupported(errno)) fail_errno(errno, "write_file", "cannot make durable", path_);
  return false;
}

void Descriptor::close() {
  // close() always releases the descriptor, on Linux also after EINTR, which is no failure.
  const int result = os::close_file(std::exchange(fd_, -1));
  if (result != 0 && errno != EINTR) fail_errno(errno, "write_file", "cannot close", path_);
}

Descriptor try_open(const std::filesystem::path& path, os::Open how) {
  std::filesystem::path copy = path;
  const int fd = os::open_file(copy, how);
  return Descriptor(fd, std::move(copy));
}

Descriptor open_file_for_reading(const std::filesystem::path& path, FollowLinks links) {
  // Opening a FIFO must not wait for its writer.
  constexpr os::Open kHow = os::Open::read | os::Open::no_wait;
  Descriptor file = try_open(path, links == FollowLinks::no ? kHow | os::Open::no_follow : kHow);
  if (!file.is_open()) {
    if (errno == ENOENT)
      fail(ErrorCode::not_found, "open_file", "there is no file ", path.string());
    if (errno == ELOOP && links == FollowLinks::no)
      fail(ErrorCode::io, "open_file", path.string(),
           " is a symbolic link; only a regular file is read here");
    fail_errno(errno, "open_file", "cannot open", path);
  }
  os::FileStatus status;
  if (os::file_status(file.fd(), status) != 0)
    fail_errno(errno, "open_file", "cannot examine", path);
  require(status.kind == os::FileStatus::Kind::regular, ErrorCode::io, "open_file", path.string(),
          " is not a regular file");
  return file;
}

Descriptor try_create_new_file(const std::filesystem::path& path) {
  Descriptor file = try_open(
      path, os::Open::write | os::Open::create | os::Open::exclusive | os::Open::no_follow);
  if (!file.is_open() && errno != EEXIST) fail_errno(errno, "create_file", "cannot create", path);
  return file;
}

Descriptor create_new_file(const std::filesystem::path& path) {
  Descriptor file = try_create_new_file(path);
  if (!file.is_open()) fail_errno(EEXIST, "create_file", "cannot create", path);
  return file;
}

void make_new_directory(const std::filesystem::path& path) {
  if (os::make_directory(path) != 0)
    fail_errno(errno, "create_directory", "cannot create directory", path);
}

void ensure_directory(const std::filesystem::path& path) {
  MadeDirectory(path).keep();
}

MadeDirectory::MadeDirectory(const std::filesystem::path& path) : path_(path) {
  try {
    make(path);
  } catch (...) {
    remove();
    throw;
  }
}

MadeDirectory::~MadeDirectory() {
  remove();
}

void MadeDirectory::make(const std::filesystem::path& path) {
  made_.reserve(made_.size() + 1);
  std::filesystem::path copy = path;
  if (os::make_directory(path) == 0) {
    made_.push_back(std::move(copy));
    sync_directory(path.has_parent_path() ? path.parent_path() : ".");
    return;
  }
  if (errno == EEXIST) {
    open_directory_for_sync(path);  // throws if it is not a directory
    return;
  }
  // For the root, which would be its own parent, errno is EEXIST.
  const bool can_create_parent = errno == ENOENT && path.has_parent_path();
  if (!can_create_parent) fail_errno(errno, "create_directory", "cannot create directory", path);
  make(path.parent_path());
  made_.reserve(made_.size() + 1);
  if (os::make_directory(path) == 0)
    made_.push_back(std::move(copy));
  else if (errno != EEXIST || path.has_filename())  // "DIR/" is its own parent
    fail_errno(errno, "create_directory", "cannot create directory", path);
  sync_directory(path.parent_path());
}

std::filesystem::path MadeDirectory::file(std::string_view name) {
  std::filesystem::path path = path_ / os::path_of(std::string(name));
  std::error_code error;
  if (!std::filesystem::exists(std::filesystem::symlink_status(path, error)))
    files_.push_back(path);
  return path;
}

void MadeDirectory::keep() noexcept {
  files_.clear();
  made_.clear();
}

void MadeDirectory::remove() noexcept {
  for (const std::filesystem::path& file : files_) os::remove_file(file);
  for (; !made_.empty(); made_.pop_back()) os::remove_directory(made_.back());
}

void ensure_own_directory(const std::filesystem::path& path) {
  if (os::make_directory(path) == 0) {
    sync_directory(path.has_parent_path() ? path.parent_path() : ".");
    return;
  }
  if (errno != EEXIST) fail_errno(errno, "create_directory", "cannot create directory", path);
  refuse_linked_directory(path);
}

void refuse_linked_directory(const std::filesystem::path& path) {
  const Descriptor directory =
      try_open(path, os::Open::read | os::Open::directory | os::Open::no_follow);
  if (directory.is_open() || errno == ENOENT) return;
  require(errno != ENOTDIR && errno != ELOOP, ErrorCode::io, "open_directory", path.string(),
          " is a symbolic link or no directory; what belongs to a run lies in its own directory");
  fail_errno(errno, "open_directory", "cannot open directory", path);
}

bool sync_directory(const std::filesystem::path& path) {
  return open_directory_for_sync(path).sync();
}

void rename_path(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (os::rename_replacing(from, to) == 0) return;
  const int error = errno;
  fail_errno(error, "rename", concat("cannot rename ", from.string(), " to"), to);
}

void remove_tree(const std::filesystem::path& path) {
  if (os::remove_tree(path) != 0) fail_errno(errno, "remove", "cannot remove", path);
}

std::vector<std::string> list_directory(const std::filesystem::path& path) {
  os::DirectoryReader directory(path);
  if (!directory.is_open()) {
    if (errno == ENOENT)
      fail(ErrorCode::not_found, "list_directory", "there is no directory ", path.string());
    fail_errno(errno, "list_directory", "cannot list", path);
  }
  std::vector<std::string> names;
  std::string name;  // until errno is read: freeing it may change that
  while (directory.next(name)) names.push_back(name);
  if (errno != 0) fail_errno(errno, "list_directory", "cannot list", path);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace trafo
