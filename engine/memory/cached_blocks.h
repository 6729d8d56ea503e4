// The free list of a caching allocator: freed blocks by rounded size.
#pragma once

#include <bit>
#include <cstddef>
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
    if (found == free_.end() || found->second.empty()) return nullptr;
    void* block = found->second.back();
    found->second.pop_back();
    return block;
  }
  // Caches a block. False if there is no memory for the list entry.
  bool keep(size_t size, void* block) noexcept {
    try {
      free_[size].push_back(block);
      return true;
    } catch (...) {
      return false;
    }
  }
  template <class Release>  // release(block, size)
  void drain(Release release) noexcept {
    for (auto& [size, blocks] : free_) {
      for (void* block : blocks) release(block, size);
      blocks.clear();
    }
  }

 private:
  std::map<size_t, std::vector<void*>> free_;
};

}  // namespace trafo
