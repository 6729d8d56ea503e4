// Common parts of the targets.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>
#include <span>
#include <string>
#include <string_view>

#include "engine/core/status.h"
#include "tests/support/scratch_directory.h"

namespace trafo::fuzz {

[[noreturn]] inline void finding(const std::string& what) {
  std::fprintf(stderr, "finding: %s\n", what.c_str());
  std::abort();
}

inline void expect(bool condition, const char* what) {
  if (!condition) finding(what);
}

// Whether `function` went through; a refusal is one of the errors that a user may see.
template <class Function>
bool attempt(Function&& function) {
  try {
    function();
    return true;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::internal || error.code() == ErrorCode::ok)
      finding(std::string("error of an impossible kind: ") + error.what());
    expect(!error.message().empty(), "an error without a message");
    return false;
  }
}

// Takes an input apart: 0xff, which is in no UTF-8 text, ends a part.
class Parts {
 public:
  explicit Parts(std::string_view input) : rest_(input) {}
  unsigned byte() {
    if (rest_.empty()) return 0;
    const auto value = static_cast<unsigned char>(rest_.front());
    rest_.remove_prefix(1);
    return value;
  }
  std::string_view part() {
    const size_t end = rest_.find('\xff');
    const std::string_view text = rest_.substr(0, end);
    rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
    return text;
  }
  std::string_view rest() const { return rest_; }
  bool empty() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

// One folder of the process, removed at its end.
class Folder : public ScratchDirectory {
 public:
  std::filesystem::path write(const std::string& name, std::string_view bytes) const {
    const std::filesystem::path file = path() / name;
    std::ofstream out(file, std::ios::binary | std::ios::trunc);
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    out.close();
    if (!out) finding("cannot write " + file.string());
    return file;
  }
};

inline const Folder& folder() {
  static const Folder one;
  return one;
}

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}
inline std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace trafo::fuzz
