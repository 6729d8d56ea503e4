// The free list of a caching allocator: freed blocks by rounded size.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace trafo {

// Not thread-safe. Sizes are rounded up to one of eight steps per power of two, so that requests of
// nearly the same size can use the same block.
class CachedBlocks {
 public:
  static constexpr size_t kAlignment = 64;

  static size_t rounded(size_t bytes) {
    if (bytes <= 512) return (bytes + kAlignment - 1) / kAlignment * kAlignment;
    const size_t step = std::bit_floor(bytes) / 8;
    return (bytes + step - 1) / step * step;
  }

  // A cached block of exactly this rounded size, or null.
  void* take(size_t size) {
    const auto found = free_.find(size);
    if (found == free_.end() || found->second.blocks.empty()) return nullptr;
    Blocks& of_size = found->second;
    void* block = of_size.blocks.back();
    of_size.blocks.pop_back();
    of_size.used = ++uses_;
    bytes_ -= size;
    return block;
  }
  // The smallest size of cached blocks from this size to twice as much; 0: there is none.
  size_t next_size(size_t size) const {
    for (auto it = free_.lower_bound(size); it != free_.end() && it->first <= 2 * size; ++it)
      if (!it->second.blocks.empty()) return it->first;
    return 0;
  }
  size_t bytes() const { return bytes_; }
  // Caches a block. False if there is no memory for the list entry.
  bool keep(size_t size, void* block) noexcept {
    try {
      Blocks& of_size = free_[size];
      of_size.blocks.push_back(block);
      of_size.used = ++uses_;
      bytes_ += size;
      return true;
    } catch (...) {
      return false;
    }
  }
  // Releases blocks until at most `most` bytes are cached: first blocks of the size that was not
  // used for the longest time.
  template <class Release>  // release(block, size)
  void shrink(size_t most, Release release) noexcept {
    while (bytes_ > most) {
      auto& [size, oldest] = *std::min_element(
          free_.begin(), free_.end(),
          [](const auto& a, const auto& b) { return a.second.order() < b.second.order(); });
      for (; bytes_ > most && !oldest.blocks.empty(); bytes_ -= size) {
        release(oldest.blocks.back(), size);
        oldest.blocks.pop_back();
      }
    }
  }
  template <class Release>
  void drain(Release release) noexcept {
    shrink(0, release);
  }

 private:
  struct Blocks {
    std::vector<void*> blocks;
    uint64_t used = 0;  // uses_ when a block was taken or cached
    uint64_t order() const { return blocks.empty() ? UINT64_MAX : used; }
  };

  std::map<size_t, Blocks> free_;
  uint64_t uses_ = 0;
  size_t bytes_ = 0;  // cached
};

}  // namespace trafo
