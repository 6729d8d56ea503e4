// The checkpoints of a run directory:
//
//   RUN/ckpt/UPDATE/      files given by the caller and manifest.json (size and CRC-32 of each)
//   RUN/latest            text, the UPDATE saved last; further such pointers ("best-bleu") by
//   write_pointer RUN/ckpt/.UPDATE.tmp-PID   being written or being deleted; .UPDATE.old-PID: being
//   replaced
//
// RUN/ckpt must be a directory of its own: where it is a symbolic link, nothing is saved or
// deleted. A checkpoint appears whole or not at all, also after kill -9 and power loss. Only one
// process may write: hold a DirectoryLock on RUN. Not thread-safe. IO errors leave the earlier
// checkpoints as they were.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/status.h"
#include "engine/io/byte_sink.h"

namespace trafo {

struct CheckpointFile {
  std::string name;  // [A-Za-z0-9_-][A-Za-z0-9._-]*, at most 100 bytes, not "manifest.json"
  std::function<void(ByteSink&)> write;
};

struct ManifestEntry {
  std::string name;
  uint64_t bytes = 0;
  std::string crc32;  // eight hexadecimal digits
};

struct NewestValid {
  std::optional<int64_t> update;  // none: there is no valid checkpoint
  std::vector<Error> refused;     // why each newer one was passed over, newest first
};

class CheckpointDirectory {
 public:
  // Touches nothing; save() creates the directories.
  explicit CheckpointDirectory(std::filesystem::path run_directory);

  std::filesystem::path path(int64_t update) const;

  // Writes the files in the given order, then the manifest, makes all durable, shows the checkpoint
  // under its name (replacing one of the same number) and points `latest` to it. On error nothing
  // of it remains, with two exceptions: when the last fsync of RUN/ckpt fails, the checkpoint is
  // whole but may not survive a power loss; when only `latest` cannot be written, it is whole and
  // durable.
  void save(int64_t update, std::span<const CheckpointFile> files);

  // Ascending numbers of the directories whose manifest can be opened; their content is not
  // checked.
  std::vector<int64_t> list() const;

  // Reads every byte of checkpoint `update` against its manifest. CORRUPT_FILE names the directory
  // and the file that is missing, short, long or damaged; VERSION: written by a newer release;
  // NOT_FOUND: no such checkpoint.
  std::vector<ManifestEntry> verify(int64_t update) const;

  // The newest checkpoint that verify() accepts. Whether an older one will do is the caller's
  // decision, made with `refused`. What is not damage is not passed over: VERSION is thrown for one
  // written by a newer release, IO for one that could not be read this time.
  NewestValid newest_valid() const;

  // One file of a checkpoint: at most max_bytes, checked against the manifest, symbolic links
  // refused.
  std::string read_text(int64_t update, std::string_view file, uint64_t max_bytes) const;

  // Deletes all but the newest `keep_last` (>= 1) checkpoints, those in `keep` and the newest valid
  // one, which is looked for by verify() unless it is the one this object saved last. Returns what
  // it deleted.
  std::vector<int64_t> remove_old(int64_t keep_last, std::span<const int64_t> keep);

  // Removes what dead processes left in RUN and RUN/ckpt and puts back a checkpoint whose
  // replacement was cut short; call it with the DirectoryLock held and no save under way. Names in
  // the order of removal.
  std::vector<std::string> remove_leftovers();

  // RUN/NAME, a text file with an update number. read: none when missing, CORRUPT_FILE when it is
  // not a number.
  void write_pointer(std::string_view name, int64_t update) const;
  std::optional<int64_t> read_pointer(std::string_view name) const;

 private:
  std::vector<int64_t> numbered() const;  // ascending; everything with an update's name
  std::filesystem::path temporary(int64_t update, std::string_view kind) const;
  void publish(const std::filesystem::path& temporary_path, int64_t update) const;

  std::filesystem::path run_;
  std::filesystem::path root_;    // RUN/ckpt
  std::optional<int64_t> saved_;  // known to be valid: written by this object
};

}  // namespace trafo
