// The destination of a stream of bytes: a file, a buffer, a file of a checkpoint.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace trafo {

class ByteSink {
 public:
  virtual ~ByteSink() = default;
  // Takes all bytes or throws Error.
  virtual void write(std::span<const std::byte> bytes) = 0;
  void write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }
};

class MemorySink final : public ByteSink {
 public:
  using ByteSink::write;
  void write(std::span<const std::byte> bytes) override {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace trafo
