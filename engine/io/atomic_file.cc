#include "engine/io/atomic_file.h"

#include <cerrno>
#include <utility>

#include "engine/io/temporary_name.h"
#include "engine/os/names.h"
#include "engine/os/process.h"

namespace trafo {
namespace {

std::filesystem::path parent_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : ".";
}

template <class Container>
Container read_whole(const std::filesystem::path& path, uint64_t max_bytes, FollowLinks links) {
  const Descriptor file = open_file_for_reading(path, links);
  const uint64_t size = file.size();
  require(size <= max_bytes, ErrorCode::io, "read_file", path.string(), " has ", size,
          " bytes, more than the limit of ", max_bytes);
  Container content;
  content.resize(static_cast<size_t>(size));
  const auto bytes = std::as_writable_bytes(std::span(content.data(), content.size()));
  std::byte beyond[1];
  require(file.read_at(0, bytes) == size && file.read_at(size, beyond) == 0, ErrorCode::io,
          "read_file", path.string(), " changed its length while it was read");
  return content;
}

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path target) : target_(std::move(target)) {
  require(target_.has_filename(), ErrorCode::invalid_argument, "write_file", "'", target_.string(),
          "' does not name a file");
  try {
    remove_stale_temporaries(target_);
  } catch (const Error&) {  // leftovers do no harm, and a bad directory fails below
  }
  // A dead process with the same id may have left a file of this name, but not a hundred of them.
  for (int attempt = 0; attempt < 100; ++attempt) {
    temporary_ = parent_of(target_) / os::path_of(temporary_file_name(target_.filename().string()));
    file_ = try_create_new_file(temporary_);
    if (!file_.is_open()) continue;
    try {
      lock_ = lock_temporary(file_);
    } catch (...) {
      discard();
      throw;
    }
    if (lock_.is_open()) return;
  }
  fail_errno(EEXIST, "create_file", "cannot create", temporary_);
}

AtomicFile::~AtomicFile() {
  discard();
}

void AtomicFile::discard() noexcept {
  if (temporary_.empty()) return;
  file_ = Descriptor();
  os::remove_file(temporary_);
  lock_ = Descriptor();
  temporary_.clear();
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  require(file_.is_open(), ErrorCode::internal, "write_file", "write after commit to ",
          target_.string());
  file_.write_all(bytes);
}

void AtomicFile::commit() {
  require(file_.is_open(), ErrorCode::internal, "write_file", "second commit of ",
          target_.string());
  try {
    file_.sync();
    file_.close();
    rename_path(temporary_, target_);
  } catch (...) {
    discard();
    throw;
  }
  temporary_.clear();
  lock_ = Descriptor();
  sync_directory(parent_of(target_));
}

void write_file_atomically(const std::filesystem::path& target, std::span<const std::byte> bytes) {
  AtomicFile file(target);
  file.write(bytes);
  file.commit();
}

void write_file_atomically(const std::filesystem::path& target, std::string_view text) {
  write_file_atomically(target, std::as_bytes(std::span(text.data(), text.size())));
}

std::vector<std::byte> read_file(const std::filesystem::path& path, uint64_t max_bytes,
                                 FollowLinks links) {
  return read_whole<std::vector<std::byte>>(path, max_bytes, links);
}

std::string read_text_file(const std::filesystem::path& path, uint64_t max_bytes,
                           FollowLinks links) {
  return read_whole<std::string>(path, max_bytes, links);
}

std::vector<std::string> remove_stale_temporaries(const std::filesystem::path& target) {
  std::vector<std::string> removed;
  for (const std::string& name : list_directory(parent_of(target))) {
    const auto temporary = parse_temporary_name(name);
    if (!temporary || temporary->name != target.filename().string() || temporary->kind != "tmp" ||
        os::process_is_alive(temporary->pid))
      continue;
    if (remove_if_unlocked(parent_of(target) / os::path_of(name))) removed.push_back(name);
  }
  return removed;
}

Descriptor lock_temporary(const Descriptor& temporary) {
  Descriptor lock(os::duplicate_file(temporary.fd()), temporary.path());
  if (!lock.is_open()) fail_errno(errno, "create_file", "cannot keep open", temporary.path());
  os::FileStatus status;
  const bool is_locked = os::lock_file(lock.fd()) == 0;
  // A file system without locks must not keep anybody from writing.
  if (!is_locked && errno == EWOULDBLOCK) return {};
  if (os::file_status(lock.fd(), status) == 0 && status.names == 0) return {};
  return lock;
}

bool remove_if_unlocked(const std::filesystem::path& temporary) {
  constexpr os::Open kHow = os::Open::no_wait | os::Open::no_follow;
  // NFS locks only files that are open for writing, and no directory can be.
  Descriptor file = try_open(temporary, os::Open::read_write | kHow);
  if (!file.is_open()) file = try_open(temporary, os::Open::read | kHow);
  if (file.is_open() && os::lock_file(file.fd()) != 0 && errno == EWOULDBLOCK) return false;
  remove_tree(temporary);  // while the lock is held: its writer notices
  return true;
}

}  // namespace trafo
