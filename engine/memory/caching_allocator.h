// Host memory. Freed blocks are kept for the next request instead of returned to the system, so
// that a training step uses pages that are already mapped. Work of ever other sizes, as requests of
// a server, would keep blocks of all sizes: memory from the system is bounded by the most that was
// in use at once lately.
#pragma once

#include <cstddef>
#include <filesystem>
#include <mutex>
#include <unordered_map>

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

  // From now on, blocks of at least kFileBlock bytes lie in files of this directory, zeros at
  // first.
  void set_directory(std::filesystem::path directory) { directory_ = std::move(directory); }
  const std::filesystem::path& directory() const { return directory_; }
  static constexpr size_t kFileBlock = size_t{16} << 20;

  void* allocate(size_t bytes);                        // null for zero bytes; throws OUT_OF_MEMORY
  void release(void* pointer, size_t bytes) noexcept;  // `bytes` as in allocate()
  // Allocates from the system and returns to it, without rounding or caching.
  void* allocate_exactly(size_t bytes);
  void release_exactly(void* pointer, size_t bytes) noexcept;
  void release_cached() noexcept;
  MemoryStats stats() const;
  void reset_peak();

  // Blocks in use and cached ones together have at most 1.25 times the most bytes that were in use
  // at once, and kSpare. The most is that of this period of kPeriod allocations and of the one
  // before. Before others are returned to the system for a new block, a cached one of up to twice
  // the size is taken.
  static constexpr size_t kSpare = size_t{16} << 20;
  static constexpr int64_t kPeriod = 1 << 16;

 private:
  void count_locked(size_t bytes) noexcept;
  void* from_system_locked(size_t size);
  void* take_larger_locked(size_t size, size_t& whole);
  size_t most_cached_locked(size_t asked) const noexcept;
  void shrink_locked(size_t most_cached) noexcept;
  void return_locked(void* block, size_t size) noexcept;

  mutable std::mutex mutex_;
  std::filesystem::path directory_;  // empty: none
  CachedBlocks cached_;
  MemoryStats stats_;
  std::unordered_map<void*, size_t> larger_;  // sizes of blocks that are larger than asked for
  int64_t in_use_ = 0;                        // bytes, without those in files
  int64_t most_in_period_ = 0, most_in_last_period_ = 0, allocations_ = 0;
};

}  // namespace trafo
