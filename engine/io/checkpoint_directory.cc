#include "engine/io/checkpoint_directory.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "engine/core/limits.h"
#include "engine/io/atomic_file.h"
#include "engine/io/checksum.h"
#include "engine/io/descriptor.h"
#include "engine/io/manifest.h"
#include "engine/io/safetensors.h"
#include "engine/io/temporary_name.h"
#include "engine/os/names.h"
#include "engine/os/process.h"

namespace trafo {
namespace {

constexpr std::string_view kCheckpointDirectoryOrigin = "checkpoint";
constexpr const char* kFolder = "ckpt";
constexpr size_t kFilePieceBytes = size_t{1} << 20;

// A file of a checkpoint that is being written; computes its checksum on the way.
class FileSink final : public ByteSink {
 public:
  explicit FileSink(const std::filesystem::path& path) : file_(create_new_file(path)) {}
  using ByteSink::write;
  void write(std::span<const std::byte> bytes) override {
    file_.write_all(bytes);
    crc_ = crc32(bytes, crc_);
    bytes_ += bytes.size();
  }
  ManifestEntry finish(std::string name) {
    file_.sync();
    file_.close();
    return {std::move(name), bytes_, crc32_text(crc_)};
  }

 private:
  Descriptor file_;
  uint64_t bytes_ = 0;
  uint32_t crc_ = 0;
};

// Removes a directory that is not part of any checkpoint. If that fails, remove_leftovers() does it
// later: the save or deletion has already succeeded or failed.
void remove_unneeded(const std::filesystem::path& path) noexcept {
  os::remove_tree(path);
}

std::vector<std::string> list_if_present(const std::filesystem::path& directory) {
  try {
    return list_directory(directory);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::not_found) throw;
    return {};
  }
}

bool is_present(const std::filesystem::path& directory) {
  try {
    list_directory(directory);
    return true;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::not_found) throw;
    return false;
  }
}

Descriptor open_member(const std::filesystem::path& checkpoint, std::string_view name) {
  try {
    return open_file_for_reading(checkpoint / name, FollowLinks::no);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::not_found) throw;
    fail(ErrorCode::corrupt_file, kCheckpointDirectoryOrigin, checkpoint.string(), ": ", name,
         " is missing");
  }
}

std::vector<ManifestEntry> read_manifest(const std::filesystem::path& checkpoint,
                                         std::optional<int64_t> update) {
  require(is_present(checkpoint), ErrorCode::not_found, kCheckpointDirectoryOrigin,
          "there is no checkpoint ", checkpoint.string());
  open_member(checkpoint, kManifestName);
  const std::filesystem::path path = checkpoint / kManifestName;
  return parse_manifest(read_text_file(path, limits::kConfigBytes, FollowLinks::no), update,
                        path.string());
}

void require_size(const std::filesystem::path& checkpoint, const ManifestEntry& entry,
                  uint64_t size) {
  require(size == entry.bytes, ErrorCode::corrupt_file, kCheckpointDirectoryOrigin,
          checkpoint.string(), ": ", entry.name, " has ", size, " bytes, the manifest says ",
          entry.bytes);
}

// Tensors have checksums too, so that the error can name the damaged one.
void require_sum(const std::filesystem::path& checkpoint, const ManifestEntry& entry,
                 uint32_t crc) {
  if (crc32_text(crc) == entry.crc32) return;
  const std::filesystem::path file = checkpoint / entry.name;
  const std::string found =
      file.extension() == ".safetensors" ? safetensors_damage(file) : std::string();
  fail(ErrorCode::corrupt_file, kCheckpointDirectoryOrigin, checkpoint.string(), ": ", entry.name,
       " is damaged, its checksum does not fit the manifest", found.empty() ? "" : ": ", found);
}

void verify_file(const std::filesystem::path& checkpoint, const ManifestEntry& entry,
                 std::vector<std::byte>& piece) {
  const Descriptor file = open_member(checkpoint, entry.name);
  require_size(checkpoint, entry, file.size());
  uint32_t crc = 0;
  for (uint64_t done = 0; done < entry.bytes;) {
    const size_t count = file.read_at(done, piece);
    if (count == 0) require_size(checkpoint, entry, done);
    crc = crc32(std::span(piece).first(count), crc);
    done += count;
  }
  require_sum(checkpoint, entry, crc);
}

void check_files(int64_t update, std::span<const CheckpointFile> files) {
  require(update >= 0, ErrorCode::invalid_argument, kCheckpointDirectoryOrigin, "update ", update,
          " is negative");
  require(files.size() <= limits::kCheckpointFiles, ErrorCode::invalid_argument,
          kCheckpointDirectoryOrigin, "a checkpoint has at most ", limits::kCheckpointFiles,
          " files, not ", files.size());
  for (size_t i = 0; i < files.size(); ++i) {
    require(is_plain_name(files[i].name) && files[i].name != kManifestName && files[i].write,
            ErrorCode::invalid_argument, kCheckpointDirectoryOrigin, "'", files[i].name,
            "' cannot be a file of a checkpoint: the name is not allowed or nothing writes it");
    for (size_t j = 0; j < i; ++j)
      require(files[i].name != files[j].name, ErrorCode::invalid_argument,
              kCheckpointDirectoryOrigin, "there are two files named '", files[i].name, "'");
  }
}

}  // namespace

void verify_file_of_checkpoint(const std::filesystem::path& file) {
  const std::filesystem::path folder =
      std::filesystem::absolute(file).lexically_normal().parent_path();
  std::optional<int64_t> update;
  if (folder.parent_path().filename() == kFolder)
    update = parse_decimal(folder.filename().string());
  std::error_code none;
  if (!update &&
      !std::filesystem::exists(std::filesystem::symlink_status(folder / kManifestName, none)))
    return;
  const std::vector<ManifestEntry> entries = read_manifest(folder, update);
  const std::string name = file.filename().string();
  std::vector<std::byte> piece(kFilePieceBytes);
  bool found = false;
  for (const ManifestEntry& entry : entries) {
    const bool is_named = entry.name == name;
    found |= is_named;
    const bool is_text =
        std::filesystem::path(entry.name).extension() == ".json" &&
        std::filesystem::exists(std::filesystem::symlink_status(folder / entry.name, none));
    if (is_named || is_text) verify_file(folder, entry, piece);
  }
  require(found, ErrorCode::corrupt_file, kCheckpointDirectoryOrigin, folder.string(),
          ": the manifest has no file '", name, "'");
}

CheckpointDirectory::CheckpointDirectory(std::filesystem::path run_directory)
    : run_(std::move(run_directory)), root_(run_ / kFolder) {}

std::filesystem::path CheckpointDirectory::path(int64_t update) const {
  return root_ / concat(update);
}

std::filesystem::path CheckpointDirectory::temporary(int64_t update, std::string_view kind) const {
  return root_ / temporary_directory_name(concat(update), kind);
}

void CheckpointDirectory::save(int64_t update, std::span<const CheckpointFile> files) {
  check_files(update, files);
  ensure_directory(run_);
  ensure_own_directory(root_);
  const std::filesystem::path unfinished = temporary(update, "tmp");
  remove_tree(unfinished);  // of a dead process with the same id
  make_new_directory(unfinished);
  try {
    std::vector<ManifestEntry> entries;
    for (const CheckpointFile& file : files) {
      FileSink sink(unfinished / file.name);
      file.write(sink);
      entries.push_back(sink.finish(file.name));
    }
    FileSink manifest(unfinished / kManifestName);
    manifest.write(encode_manifest(update, entries));
    manifest.finish(std::string(kManifestName));
    sync_directory(unfinished);
    publish(unfinished, update);
  } catch (...) {
    remove_unneeded(unfinished);
    throw;
  }
  saved_ = update;
  write_pointer("latest", update);
}

void CheckpointDirectory::publish(const std::filesystem::path& unfinished, int64_t update) const {
  // A directory cannot be renamed onto one that has files. Between the two renames the old one has
  // a name from which remove_leftovers() can restore it.
  const std::filesystem::path final = path(update);
  const std::filesystem::path old = temporary(update, "old");
  if (is_present(old)) {  // an earlier replacement failed, and so did undoing it
    if (is_present(final))
      remove_tree(old);
    else
      rename_path(old, final);
  }
  const bool replaces = os::rename_replacing(final, old) == 0;
  if (!replaces && errno != ENOENT)
    fail_errno(errno, kCheckpointDirectoryOrigin, "cannot replace", final);
  try {
    rename_path(unfinished, final);
  } catch (...) {
    if (replaces) os::rename_replacing(old, final);
    throw;
  }
  sync_directory(root_);
  if (replaces) remove_unneeded(old);
}

std::vector<int64_t> CheckpointDirectory::numbered() const {
  std::vector<int64_t> updates;
  for (const std::string& name : list_if_present(root_))
    if (const auto update = parse_decimal(name)) updates.push_back(*update);
  std::sort(updates.begin(), updates.end());
  return updates;
}

std::vector<int64_t> CheckpointDirectory::list() const {
  std::vector<int64_t> updates = numbered();
  std::erase_if(updates, [&](int64_t update) {
    try {
      open_member(path(update), kManifestName);
      return false;
    } catch (const Error&) {
      return true;  // newest_valid() and verify() say why
    }
  });
  return updates;
}

std::vector<ManifestEntry> CheckpointDirectory::verify(int64_t update) const {
  const std::filesystem::path checkpoint = path(update);
  std::vector<ManifestEntry> entries = read_manifest(checkpoint, update);
  std::vector<std::byte> piece(kFilePieceBytes);
  for (const ManifestEntry& entry : entries) verify_file(checkpoint, entry, piece);
  return entries;
}

NewestValid CheckpointDirectory::newest_valid() const {
  NewestValid result;
  std::vector<int64_t> updates = numbered();
  for (; !updates.empty(); updates.pop_back()) {
    try {
      verify(updates.back());
      result.update = updates.back();
      break;
    } catch (const Error& error) {
      if (error.code() == ErrorCode::version) throw;
      if (error.code() == ErrorCode::io)
        fail(ErrorCode::io, kCheckpointDirectoryOrigin, error.message(), "; if it stays so, move ",
             path(updates.back()).string(), " away to continue from an older checkpoint");
      result.refused.push_back(error);
    }
  }
  return result;
}

std::string CheckpointDirectory::read_text(int64_t update, std::string_view file,
                                           uint64_t max_bytes) const {
  const std::filesystem::path checkpoint = path(update);
  const std::vector<ManifestEntry> entries = read_manifest(checkpoint, update);
  const auto entry = std::find_if(entries.begin(), entries.end(),
                                  [&](const ManifestEntry& each) { return each.name == file; });
  require(entry != entries.end(), ErrorCode::not_found, kCheckpointDirectoryOrigin,
          checkpoint.string(), " has no file '", file, "'");
  open_member(checkpoint, file);
  const std::string text = read_text_file(checkpoint / file, max_bytes, FollowLinks::no);
  require_size(checkpoint, *entry, text.size());
  require_sum(checkpoint, *entry, crc32(std::as_bytes(std::span(text.data(), text.size()))));
  return text;
}

std::vector<int64_t> CheckpointDirectory::remove_old(int64_t keep_last,
                                                     std::span<const int64_t> keep) {
  require(keep_last >= 1, ErrorCode::invalid_argument, kCheckpointDirectoryOrigin,
          "at least one checkpoint must be kept, not ", keep_last);
  refuse_linked_directory(root_);
  const std::vector<int64_t> updates = list();
  const auto is_valid = [&](int64_t update) {
    if (update == saved_) return true;
    try {
      verify(update);
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  std::vector<int64_t> victims;
  bool found_valid = false;
  for (size_t i = updates.size(); i-- > 0;) {
    const bool is_newest_valid = !found_valid && is_valid(updates[i]);
    found_valid |= is_newest_valid;
    const bool is_recent = updates.size() - i <= static_cast<uint64_t>(keep_last);
    const bool is_protected = std::find(keep.begin(), keep.end(), updates[i]) != keep.end();
    if (!is_recent && !is_protected && !is_newest_valid) victims.push_back(updates[i]);
  }
  // Without a valid checkpoint, a person may still rescue data from the damaged ones.
  if (!found_valid) victims.clear();
  std::reverse(victims.begin(), victims.end());
  // Hidden first, durably: a half-deleted checkpoint must not look like one.
  for (const int64_t update : victims) {
    remove_tree(temporary(update, "tmp"));
    rename_path(path(update), temporary(update, "tmp"));
  }
  if (!victims.empty()) sync_directory(root_);
  for (const int64_t update : victims) remove_tree(temporary(update, "tmp"));
  return victims;
}

std::vector<std::string> CheckpointDirectory::remove_leftovers() {
  refuse_linked_directory(root_);
  std::vector<std::string> removed;
  const auto is_dead = [](const TemporaryName& temporary) {
    // The same process id is a dead process too: in containers every first process has id 1.
    return temporary.pid == os::process_id() || !os::process_is_alive(temporary.pid);
  };
  for (const std::string& name : list_if_present(root_)) {
    const auto leftover = parse_temporary_name(name);
    const auto update = leftover ? parse_decimal(leftover->name) : std::nullopt;
    if (!update || !is_dead(*leftover)) continue;
    if (leftover->kind == "old" && !is_present(path(*update))) {
      rename_path(root_ / name, path(*update));
      sync_directory(root_);
    } else {
      remove_tree(root_ / name);
      removed.push_back(name);
    }
  }
  for (const std::string& name : list_if_present(run_)) {
    const auto leftover = parse_temporary_name(name);
    if (!leftover || leftover->kind != "tmp" || !is_dead(*leftover)) continue;
    if (remove_if_unlocked(run_ / os::path_of(name))) removed.push_back(name);
  }
  return removed;
}

void CheckpointDirectory::write_pointer(std::string_view name, int64_t update) const {
  require(is_plain_name(name), ErrorCode::invalid_argument, kCheckpointDirectoryOrigin, "'", name,
          "' cannot be a file name here");
  write_file_atomically(run_ / name, concat(update, "\n"));
}

void CheckpointDirectory::remove_pointer(std::string_view name) const {
  require(is_plain_name(name), ErrorCode::invalid_argument, kCheckpointDirectoryOrigin, "'", name,
          "' cannot be a file name here");
  std::error_code error;
  std::filesystem::remove(run_ / name, error);
  require(!error, ErrorCode::io, kCheckpointDirectoryOrigin, (run_ / name).string(),
          ": cannot be removed: ", error.message());
}

std::optional<int64_t> CheckpointDirectory::read_pointer(std::string_view name) const {
  require(is_plain_name(name), ErrorCode::invalid_argument, kCheckpointDirectoryOrigin, "'", name,
          "' cannot be a file name here");
  const std::filesystem::path path = run_ / name;
  std::string text;
  try {
    text = read_text_file(path, 64, FollowLinks::no);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::not_found) throw;
    return std::nullopt;
  }
  if (text.ends_with('\n')) text.pop_back();
  const auto update = parse_decimal(text);
  require(update.has_value(), ErrorCode::corrupt_file, kCheckpointDirectoryOrigin, path.string(),
          " does not hold an update number");
  return update;
}

}  // namespace trafo
