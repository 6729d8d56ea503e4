// Host memory for copies of large tensors.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>

namespace trafo {

// Bytes with unspecified contents: a copy fills them, so zeroing them first would be a second pass.
// A large buffer asks for huge pages, which take a fraction of the time to map.
class HostBuffer {
 public:
  HostBuffer() = default;
  // Throws std::bad_alloc.
  explicit HostBuffer(size_t bytes);

  std::byte* data() const { return data_.get(); }
  size_t size() const { return size_; }
  std::span<std::byte> bytes() const { return {data(), size_}; }

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t size_ = 0;
};

}  // namespace trafo
