// Names in directories: renaming, removing, listing. Functions return -1 with an errno on failure.
#pragma once

#include <string>
#include <string_view>

#include "engine/os/path_ref.h"

namespace trafo::os {

// The path that a text names: UTF-8 on Windows, where std::filesystem::path takes each byte of a
// text for a character although its string() is UTF-8; bytes elsewhere.
std::filesystem::path path_of(const std::string& text);

// Replaces what has the new name, in one step. A directory replaces an empty one, or none.
// Windows before 10 (1709): EACCES if somebody has the old file open.
int rename_replacing(PathRef from, PathRef to) noexcept;
// EEXIST if there is anything of the new name. is_unsupported(): the file system cannot check it.
int rename_new(PathRef from, PathRef to) noexcept;
int remove_file(PathRef path) noexcept;
// A umask may keep the directory from others, but not from its owner.
int make_directory(PathRef path) noexcept;
int remove_directory(PathRef path) noexcept;  // an empty one
// Removes a file, or a directory with everything below it. Symbolic links are removed, not
// followed. A missing path is no error.
int remove_tree(PathRef path) noexcept;

// The names in a directory, in no order, without "." and "..".
class DirectoryReader {
 public:
  explicit DirectoryReader(PathRef path) noexcept;
  ~DirectoryReader();
  DirectoryReader(const DirectoryReader&) = delete;
  DirectoryReader& operator=(const DirectoryReader&) = delete;

  bool is_open() const { return state_ != nullptr; }  // if not, errno has the reason
  // False: the end, or an error if errno is not 0. Throws std::bad_alloc.
  bool next(std::string& name);

 private:
  void* state_;
};

bool can_read(PathRef path) noexcept;             // if not, errno has the reason
bool can_make_files_in(PathRef folder) noexcept;  // if not, errno has the reason

}  // namespace trafo::os
