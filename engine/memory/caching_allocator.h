// Host memory that is kept for the next step instead of going back to the system, so that a
// training step touches pages it already has.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <vector>

#include "engine/memory/memory_stats.h"

namespace trafo {

// Thread-safe. Blocks are 64-byte aligned; sizes are rounded up to one of eight steps per power of
// two, and a freed block serves the next request of its rounded size.
class CachingAllocator {
 public:
  CachingAllocator() = default;
  ~CachingAllocator();
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  void* allocate(size_t bytes);  // null for zero bytes; OUT_OF_MEMORY if the system has none
  void release(void* pointer, size_t bytes) noexcept;  // `bytes` as asked for
  void release_cached() noexcept;
  MemoryStats stats() const;
  void reset_peak();

  static size_t rounded_size(size_t bytes);

 private:
  void release_cached_locked() noexcept;

  mutable std::mutex mutex_;
  std::map<size_t, std::vector<void*>> free_;  // by rounded size
  MemoryStats stats_;
};

}  // namespace trafo
