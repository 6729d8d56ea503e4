// Host memory for copies of large tensors.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <functional>
#include <memory>
#include <span>
#include <utility>

namespace trafo {

// Bytes with unspecified contents: a copy fills them, so zeroing them first would be a second pass.
// A large buffer asks for huge pages, which take a fraction of the time to map.
class HostBuffer {
 public:
  HostBuffer() = default;
  // Throws std::bad_alloc.
  explicit HostBuffer(size_t bytes);
  // Memory of somebody else, which `release` gives back.
  HostBuffer(std::byte* data, size_t bytes, std::function<void(std::byte*)> release)
      : data_(data, Free{std::move(release)}), size_(bytes) {}

  std::byte* data() const { return data_.get(); }
  size_t size() const { return size_; }
  std::span<std::byte> bytes() const { return {data(), size_}; }

 private:
  struct Free {
    std::function<void(std::byte*)> release;  // empty: memory of the heap
    void operator()(std::byte* data) const {
      if (release)
        release(data);
      else
        std::free(data);
    }
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t size_ = 0;
};

// Makes a buffer of a size.
using HostAllocator = std::function<HostBuffer(size_t bytes)>;
inline HostBuffer plain_host_buffer(size_t bytes) {
  return HostBuffer(bytes);
}

}  // namespace trafo
