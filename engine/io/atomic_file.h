// Files that are written whole or not at all, and files that are read whole under a size limit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/io/byte_sink.h"
#include "engine/io/descriptor.h"

namespace trafo {

// Writes to a new file `.NAME.tmp-PID-N` beside the target. commit() makes the bytes durable and
// renames the file to the target. Before that, and after any failure, the target has not changed.
// The next process that writes the same target removes files that dead processes left. Errors: IO
// with path and reason.
class AtomicFile final : public ByteSink {
 public:
  explicit AtomicFile(std::filesystem::path target);
  ~AtomicFile() override;  // without a commit: removes the temporary file
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  using ByteSink::write;
  void write(std::span<const std::byte> bytes) override;
  // fsync, close, rename, fsync of the directory. Nothing can be written afterwards.
  void commit();

 private:
  void discard() noexcept;

  std::filesystem::path target_;
  std::filesystem::path temporary_;
  Descriptor file_;
  Descriptor lock_;  // of the temporary file, until it has its name
};

void write_file_atomically(const std::filesystem::path& target, std::span<const std::byte> bytes);
void write_file_atomically(const std::filesystem::path& target, std::string_view text);

// Reads a whole regular file. Errors: NOT_FOUND; IO, also if the file is larger than `max_bytes`
// (nothing is allocated then) or changes its length while it is read.
std::vector<std::byte> read_file(const std::filesystem::path& path, uint64_t max_bytes,
                                 FollowLinks links = FollowLinks::yes);
std::string read_text_file(const std::filesystem::path& path, uint64_t max_bytes,
                           FollowLinks links = FollowLinks::yes);

// Deletes the `.NAME.tmp-PID-N` files and directories that dead processes left beside `target`, and
// returns their names.
std::vector<std::string> remove_stale_temporaries(const std::filesystem::path& target);

// A process of another PID namespace (a container) has an id that says nothing here. Writers
// therefore hold a lock on what they write: a new file or directory of a temporary name.
// Closed if somebody else is about to remove it.
Descriptor lock_temporary(const Descriptor& temporary);
// Removes a temporary file or directory, unless its writer holds the lock. Returns whether it did.
bool remove_if_unlocked(const std::filesystem::path& temporary);

}  // namespace trafo
