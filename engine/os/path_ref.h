// A path as an argument of the functions in engine/os.
#pragma once

#include <filesystem>
#include <string>

namespace trafo::os {

// Refers to a path or to text, and allocates nothing. Text is UTF-8 on Windows, and bytes
// elsewhere.
class PathRef {
 public:
  using Char = std::filesystem::path::value_type;
  PathRef(const std::filesystem::path& path) noexcept : native_(path.c_str()) {}
  PathRef(const std::string& text) noexcept : text_(text.c_str()) {}
  PathRef(const char* text) noexcept : text_(text) {}

  const Char* native() const { return native_; }  // null if the path is text
  const char* text() const { return text_; }      // null if it is not

 private:
  const Char* native_ = nullptr;
  const char* text_ = nullptr;
};

}  // namespace trafo::os
