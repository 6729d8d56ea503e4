// An open file or directory that closes itself, and file operations that throw instead of returning
// -1. All errors: NOT_FOUND (reading only, ENOENT), otherwise IO, with the path and the system's
// reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/status.h"
#include "engine/os/file.h"

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
  // A failed sync is never repeated: the kernel may have dropped the pages and report
  // success the next time. False if the file system cannot make it durable.
  bool sync();
  void close();  // throws if the system reports that earlier writes were lost

 private:
  int fd_ = -1;
  std::filesystem::path path_;
};

// If it fails, the result is not open and errno has the reason. Memory is allocated first: once the
// file is open, no failure may leave it open or locked.
Descriptor try_open(const std::filesystem::path& path, os::Open how);

// FollowLinks::no refuses a symbolic link as the last part of the path.
enum class FollowLinks { yes, no };

// Opens a regular file for reading. Directories, FIFOs and devices are refused without waiting.
Descriptor open_file_for_reading(const std::filesystem::path& path, FollowLinks links);
// Creates a file that did not exist before. An existing file or link of that name is neither
// followed nor overwritten.
Descriptor create_new_file(const std::filesystem::path& path);
// The same, but returns a closed Descriptor if the name exists.
Descriptor try_create_new_file(const std::filesystem::path& path);

void make_new_directory(const std::filesystem::path& path);  // an existing one is an error
void ensure_directory(const std::filesystem::path& path);    // and its parents, each made durable

// As ensure_directory(). Unless keep() is called, what was made is removed again: the files that
// file() has named, and directories that are empty then. A failure leaves nothing that was not
// there.
class MadeDirectory {
 public:
  explicit MadeDirectory(const std::filesystem::path& path);
  ~MadeDirectory();
  MadeDirectory(const MadeDirectory&) = delete;
  MadeDirectory& operator=(const MadeDirectory&) = delete;

  // The path of a file in the directory. One that exists already is not removed.
  std::filesystem::path file(std::string_view name);
  void keep() noexcept;

 private:
  void make(const std::filesystem::path& path);
  void remove() noexcept;

  std::filesystem::path path_;
  std::vector<std::filesystem::path> made_;  // a parent before what is in it
  std::vector<std::filesystem::path> files_;
};

// Creates only the last part of the path. IO if it is a symbolic link.
void ensure_own_directory(const std::filesystem::path& path);
// IO if the path is not a directory, for example a symbolic link to one.
void refuse_linked_directory(const std::filesystem::path& path);
// False if the file system cannot make names durable.
bool sync_directory(const std::filesystem::path& path);
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to);
void remove_tree(const std::filesystem::path& path);
// The names in a directory, sorted, without "." and "..". NOT_FOUND if there is no such directory.
std::vector<std::string> list_directory(const std::filesystem::path& path);

[[noreturn]] void fail_errno(int error, std::string_view origin, std::string_view action,
                             const std::filesystem::path& path);

}  // namespace trafo
