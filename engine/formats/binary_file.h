// Little-endian numbers in the binary files of other programs.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/io/byte_sink.h"
#include "engine/io/descriptor.h"

namespace trafo::interop {

static_assert(std::endian::native == std::endian::little);

class BinaryWriter {
 public:
  explicit BinaryWriter(ByteSink& sink) : sink_(sink) {}

  void bytes(std::span<const std::byte> data) {
    sink_.write(data);
    position_ += data.size();
  }
  void text(std::string_view value) { bytes(std::as_bytes(std::span(value.data(), value.size()))); }
  template <class T>
  void number(T value) {
    bytes(std::as_bytes(std::span(&value, 1)));
  }
  uint64_t position() const { return position_; }

 private:
  ByteSink& sink_;
  uint64_t position_ = 0;
};

// CORRUPT_FILE, naming the file, where it ends too early.
class BinaryReader {
 public:
  explicit BinaryReader(Descriptor file) : file_(std::move(file)), size_(file_.size()) {}

  void bytes(std::span<std::byte> to);
  // Nothing of a size that the file claims is allocated before the file is known to have it.
  std::vector<std::byte> bytes(uint64_t count);
  std::string text(uint64_t count);
  template <class T>
  T number() {
    T value;
    bytes(std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }
  uint64_t position() const { return position_; }
  void seek(uint64_t position) { position_ = position; }
  // CORRUPT_FILE unless `count` bytes are left.
  void require_left(uint64_t count) const;
  std::string label() const { return file_.path().string(); }

 private:
  Descriptor file_;
  uint64_t size_, position_ = 0;
};

}  // namespace trafo::interop
