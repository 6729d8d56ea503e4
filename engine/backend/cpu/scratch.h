// Reusable aligned memory of one thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

#include "engine/core/status.h"

namespace trafo {

// Grows to the largest size asked for and keeps it until its owner (thread_local, usually) ends.
class ScratchBuffer {
 public:
  explicit ScratchBuffer(std::atomic<int64_t>& total) : total_(total) {}
  ~ScratchBuffer() { release(); }
  ScratchBuffer(const ScratchBuffer&) = delete;
  ScratchBuffer& operator=(const ScratchBuffer&) = delete;

  // At least `bytes` bytes, aligned to a cache line, contents undefined. The previous pointer
  // becomes invalid.
  void* get(size_t bytes) {
    if (bytes > bytes_) {
      release();
      data_ = ::operator new(bytes, kAlign, std::nothrow);
      require(data_ != nullptr, ErrorCode::out_of_memory, "scratch", "could not allocate ", bytes,
              " bytes of scratch memory");
      bytes_ = bytes;
      total_.fetch_add(static_cast<int64_t>(bytes_), std::memory_order_relaxed);
    }
    return data_;
  }

 private:
  static constexpr std::align_val_t kAlign{64};

  void release() noexcept {
    ::operator delete(data_, kAlign);
    total_.fetch_sub(static_cast<int64_t>(bytes_), std::memory_order_relaxed);
    data_ = nullptr;
    bytes_ = 0;
  }

  std::atomic<int64_t>& total_;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace trafo
