// How CPU kernels cut [rows, width] into blocks, and memory that they keep between calls.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace trafo {

// Elements a block should have: enough to pay for handing it to a thread.
inline constexpr int64_t kBlockElements = 16384;
// Blocks that keep partial sums over their rows; more would cost memory traffic, fewer would idle
// threads.
inline constexpr int64_t kMaxPartials = 64;

// Both depend on the shape alone, so results do not depend on the number of threads.
inline int64_t rows_per_block(int64_t width) {
  return std::max<int64_t>(1, kBlockElements / std::max<int64_t>(1, width));
}
inline int64_t rows_per_partial(int64_t rows, int64_t width) {
  return std::max((rows + kMaxPartials - 1) / kMaxPartials, rows_per_block(width));
}

// Aligned memory that only grows. Meant to be thread_local: a step that repeats allocates nothing.
class Scratch {
 public:
  // Room for `count` elements; contents unspecified.
  template <class T>
  T* get(int64_t count) {
    const size_t bytes = static_cast<size_t>(count) * sizeof(T);
    if (bytes > bytes_) {
      memory_.reset();
      bytes_ = 0;
      memory_.reset(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{64})));
      bytes_ = bytes;
    }
    return reinterpret_cast<T*>(memory_.get());
  }

 private:
  struct Free {
    void operator()(std::byte* p) const { ::operator delete (p, std::align_val_t{64}); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  size_t bytes_ = 0;
};

}  // namespace trafo
