// An open file or directory that closes itself, and file operations that throw instead of returning
// -1. All errors: NOT_FOUND (reading only, ENOENT), otherwise IO, with the path and the system's
// reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "engine/core/status.h"

namespace trafo {

class Descriptor {
 public:
  Descriptor() = default;
  Descriptor(int fd, std::filesystem::path path) : fd_(fd), path_(std::move(path)) {}
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();

  int fd() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  const std::filesystem::path& path() const { return path_; }

  uint64_t size() const;
  // Writes all of `bytes`, however often the kernel takes only a part.
  void write_all(std::span<const std::byte> bytes);
  // Reads up to bytes.size() bytes at `offset`; returns fewer only at the end of the file.
  size_t read_at(uint64_t offset, std::span<std::byte> bytes) const;
  // fsync. A failed one is never repeated: the kernel may have dropped the pages and call the next
  // one a success.
  void sync();
  void close();  // throws when the system reports that earlier writes were lost

 private:
  int fd_ = -1;
  std::filesystem::path path_;
};

// open(2), with close-on-exec; where it fails the result is not open and errno says why. What takes
// memory comes first: once the file is there, nothing may fail that would leave it open, or locked.
Descriptor try_open(const std::filesystem::path& path, int flags, mode_t mode = 0);

// FollowLinks::no refuses a symbolic link as the last part of the path.
enum class FollowLinks { yes, no };

// A regular file for reading. Directories, FIFOs and devices are refused without waiting for them.
Descriptor open_file_for_reading(const std::filesystem::path& path, FollowLinks links);
// A file that did not exist before; nothing that somebody placed under that name is followed or
// overwritten.
Descriptor create_new_file(const std::filesystem::path& path);
// The same, but a closed Descriptor when something of that name exists.
Descriptor try_create_new_file(const std::filesystem::path& path);

void make_new_directory(const std::filesystem::path& path);  // an existing one is an error
void ensure_directory(const std::filesystem::path& path);    // and its parents, each made durable
// The same for the last part of the path only, where a symbolic link is no directory: IO.
void ensure_own_directory(const std::filesystem::path& path);
// IO if something else than a directory, a symbolic link for one, is there.
void refuse_linked_directory(const std::filesystem::path& path);
void sync_directory(const std::filesystem::path& path);
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to);
void remove_tree(const std::filesystem::path& path);
// Names in a directory, sorted, without "." and ".."; NOT_FOUND when there is no such directory.
std::vector<std::string> list_directory(const std::filesystem::path& path);

[[noreturn]] void fail_errno(int error, std::string_view origin, std::string_view action,
                             const std::filesystem::path& path);

}  // namespace trafo
