// The checkpoints of a run directory:
//
//   RUN/ckpt/UPDATE/          the caller's files and manifest.json (size and CRC-32 of each)
//   RUN/latest                text: the update that was saved last; write_pointer makes others
//                             like it ("best-bleu")
//   RUN/ckpt/.UPDATE.tmp-PID  a checkpoint that is being written or deleted
//   RUN/ckpt/.UPDATE.old-PID  a checkpoint that is being replaced
//
// If RUN/ckpt is a symbolic link, nothing is saved or deleted. A checkpoint appears whole or not at
// all, also after kill -9 and power loss. Only one process may write: hold a DirectoryLock on RUN.
// Not thread-safe. IO errors do not change earlier checkpoints.
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
  std::vector<Error> refused;     // why each newer one was refused, newest first
};

// If `file` is one of a checkpoint, reads it against the manifest, and the text files (.json) of
// the checkpoint too. It is one of a checkpoint if a manifest.json lies beside it, or if its folder
// is ckpt/UPDATE, which must have one. Errors: CORRUPT_FILE and VERSION, as of
// CheckpointDirectory::verify; CORRUPT_FILE: the manifest does not have the file.
void verify_file_of_checkpoint(const std::filesystem::path& file);

class CheckpointDirectory {
 public:
  // Does not touch the disk; save() creates the directories.
  explicit CheckpointDirectory(std::filesystem::path run_directory);

  std::filesystem::path path(int64_t update) const;

  // Writes the files in the given order and the manifest, makes them durable, renames the directory
  // to its final name (replacing a checkpoint of the same update) and points `latest` to it. After
  // an error nothing of it remains, with two exceptions. If the last fsync of RUN/ckpt fails, the
  // checkpoint is whole but may not survive a power loss. If only `latest` cannot be written, the
  // checkpoint is whole and durable.
  void save(int64_t update, std::span<const CheckpointFile> files);

  // The updates, in ascending order, of directories whose manifest can be opened. Their content is
  // not checked.
  std::vector<int64_t> list() const;

  // Reads every byte of checkpoint `update` against its manifest. CORRUPT_FILE names the directory
  // and the file that is missing, short, long or damaged; VERSION: written by a newer release;
  // NOT_FOUND: no such checkpoint.
  std::vector<ManifestEntry> verify(int64_t update) const;

  // The newest checkpoint that verify() accepts. `refused` lets the caller decide whether an older
  // one will do. Only damaged checkpoints are refused: a checkpoint of a newer release is VERSION,
  // and one that cannot be read is IO.
  NewestValid newest_valid() const;

  // Reads one file of a checkpoint of at most max_bytes and checks it against the manifest. A
  // symbolic link is refused.
  std::string read_text(int64_t update, std::string_view file, uint64_t max_bytes) const;

  // Deletes all checkpoints but the newest `keep_last` (>= 1), those in `keep` and the newest valid
  // one. verify() finds the latter, unless this object saved the newest. Returns the deleted
  // updates.
  std::vector<int64_t> remove_old(int64_t keep_last, std::span<const int64_t> keep);

  // Removes the temporary files of dead processes in RUN and RUN/ckpt, and restores a checkpoint
  // whose replacement was interrupted. Call it with the DirectoryLock held and no save in flight.
  // Returns the removed names in order.
  std::vector<std::string> remove_leftovers();

  // RUN/NAME, a text file with an update. Reading gives none if the file is missing, and
  // CORRUPT_FILE if it has no number.
  void write_pointer(std::string_view name, int64_t update) const;
  void remove_pointer(std::string_view name) const;  // if there is one
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
