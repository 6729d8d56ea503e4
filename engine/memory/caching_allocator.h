// Host memory that is kept for the next step instead of going back to the system, so that a
// training step touches pages it already has.
#pragma once

#include <cstddef>
#include <mutex>

#include "engine/memory/cached_blocks.h"
#include "engine/memory/memory_stats.h"

namespace trafo {

// Thread-safe. Blocks are 64-byte aligned.
class CachingAllocator {
 public:
  CachingAllocator() = default;
  ~CachingAllocator();
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  void* allocate(size_t bytes);  // null for zero bytes; OUT_OF_MEMORY if the system has none
  void release(void* pointer, size_t bytes) noexcept;  // `bytes` as asked for
  // Straight from the system, and back to it.
  void* allocate_exactly(size_t bytes);
  void release_exactly(void* pointer, size_t bytes) noexcept;
  void release_cached() noexcept;
  MemoryStats stats() const;
  void reset_peak();

 private:
  void release_cached_locked() noexcept;

  mutable std::mutex mutex_;
  CachedBlocks cached_;
  MemoryStats stats_;
};

}  // namespace trafo
