// A file of a corpus that stays on disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/os/file.h"

namespace trafo {

// An open file that is read at offsets, after it was filled if it is a temporary one.
class ReadOnlyFile {
 public:
  ReadOnlyFile() = default;
  ReadOnlyFile(const ReadOnlyFile&) = delete;
  ReadOnlyFile& operator=(const ReadOnlyFile&) = delete;
  ~ReadOnlyFile();

  void open_path(const std::string& path);
  // Opens an unnamed file for reading and writing. Returns its descriptor, which this object owns.
  int make_nameless(const std::string& directory, const std::string& for_name);

  // IO: it cannot be read or is shorter now. Any number of threads may read.
  void read(uint64_t offset, size_t length, std::string& out) const;

  const std::string& name() const { return name_; }
  // As it was when it was opened.
  const os::FileStatus& status() const { return known_; }

  [[noreturn]] void fail_changed() const;
  // IO if its size or its time of change is another than when it was opened.
  void check_unchanged() const;

 private:
  std::string name_;
  int descriptor_ = -1;
  bool watched_ = false;
  os::FileStatus known_;
};

}  // namespace trafo
