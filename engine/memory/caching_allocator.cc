#include "engine/memory/caching_allocator.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "engine/core/file_memory.h"
#include "engine/core/status.h"
#include "engine/os/memory.h"

namespace trafo {
namespace {

// Under the address sanitizer nothing is cached, so that it can detect a use after free.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kKeepBlocks = false;
#else
constexpr bool kKeepBlocks = true;
#endif

size_t aligned(size_t bytes) {
  return (bytes + CachedBlocks::kAlignment - 1) / CachedBlocks::kAlignment *
         CachedBlocks::kAlignment;
}

// Larger blocks are mappings: the C library's heap keeps what is freed between blocks in use.
constexpr size_t kMapped = kKeepBlocks ? size_t{1} << 20 : std::numeric_limits<size_t>::max();

void* take_from_system(size_t size) noexcept {
  return size >= kMapped ? os::map_pages(size, os::Pages::memory)
                         : os::allocate_aligned(CachedBlocks::kAlignment, size);
}

void give_to_system(void* block, size_t size) noexcept {
  size >= kMapped ? os::unmap_pages(block, size) : os::free_aligned(block);
}

}  // namespace

CachingAllocator::~CachingAllocator() {
  release_cached();
}

void* CachingAllocator::allocate(size_t bytes) {
  if (bytes == 0) return nullptr;
  require(bytes <= std::numeric_limits<size_t>::max() / 4, ErrorCode::out_of_memory, "allocate",
          bytes, " bytes were asked for");
  const size_t size = CachedBlocks::rounded(bytes);
  std::lock_guard lock(mutex_);
  const bool in_file = size >= kFileBlock && !directory_.empty();
  void* block = in_file ? allocate_in_file(directory_, size) : cached_.take(size);
  if (in_file) {
    stats_.reserved_bytes += static_cast<int64_t>(size);
    ++stats_.system_calls;
  } else {
    size_t whole = size;
    if (!block) block = take_larger_locked(size, whole);
    if (!block) block = from_system_locked(size);
    count_locked(whole);
  }
  stats_.allocated_bytes += static_cast<int64_t>(size);
  stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.allocated_bytes);
  return block;
}

// Counts the block as reserved. Cached ones make room for it.
void* CachingAllocator::from_system_locked(size_t size) {
  shrink_locked(most_cached_locked(size));
  void* block = take_from_system(size);
  if (!block) {
    shrink_locked(0);
    block = take_from_system(size);
  }
  require(block != nullptr, ErrorCode::out_of_memory, "allocate", "the system has no ", size,
          " bytes left; ", stats_.allocated_bytes, " bytes are in use");
  stats_.reserved_bytes += static_cast<int64_t>(size);
  ++stats_.system_calls;
  return block;
}

// Up to twice as large a block, instead of one from the system in place of others.
void* CachingAllocator::take_larger_locked(size_t size, size_t& whole) {
  if (cached_.bytes() <= most_cached_locked(size)) return nullptr;
  const size_t larger = cached_.next_size(size);
  if (larger == 0) return nullptr;
  void* const block = cached_.take(larger);
  try {
    larger_.emplace(block, larger);
  } catch (...) {
    return_locked(block, larger);
    throw;
  }
  whole = larger;
  return block;
}

void CachingAllocator::release(void* pointer, size_t bytes) noexcept {
  if (!pointer) return;
  size_t size = CachedBlocks::rounded(bytes);
  std::lock_guard lock(mutex_);
  stats_.allocated_bytes -= static_cast<int64_t>(size);
  if (size >= kFileBlock && lies_in_file(pointer)) {
    free_in_file(pointer);
    stats_.reserved_bytes -= static_cast<int64_t>(size);
    ++stats_.system_calls;
    return;
  }
  if (const auto found = larger_.find(pointer); found != larger_.end()) {
    size = found->second;
    larger_.erase(found);
  }
  in_use_ -= static_cast<int64_t>(size);
  if (!kKeepBlocks || !cached_.keep(size, pointer)) return_locked(pointer, size);
}

void* CachingAllocator::allocate_exactly(size_t bytes) {
  const size_t size = aligned(bytes);
  std::lock_guard lock(mutex_);
  void* block = from_system_locked(size);
  stats_.allocated_bytes += static_cast<int64_t>(size);
  stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.allocated_bytes);
  count_locked(size);
  return block;
}

void CachingAllocator::release_exactly(void* pointer, size_t bytes) noexcept {
  const auto size = static_cast<int64_t>(aligned(bytes));
  give_to_system(pointer, static_cast<size_t>(size));
  std::lock_guard lock(mutex_);
  ++stats_.system_calls;
  stats_.allocated_bytes -= size;
  stats_.reserved_bytes -= size;
  in_use_ -= size;
}

void CachingAllocator::release_cached() noexcept {
  std::lock_guard lock(mutex_);
  shrink_locked(0);
}

void CachingAllocator::count_locked(size_t bytes) noexcept {
  in_use_ += static_cast<int64_t>(bytes);
  most_in_period_ = std::max(most_in_period_, in_use_);
  if (++allocations_ < kPeriod) return;
  allocations_ = 0;
  most_in_last_period_ = std::exchange(most_in_period_, in_use_);
  shrink_locked(most_cached_locked(0));
}

// Bytes that may be cached if the system gives `asked` more.
size_t CachingAllocator::most_cached_locked(size_t asked) const noexcept {
  const int64_t needed = in_use_ + static_cast<int64_t>(asked);
  const int64_t most = std::max({needed, most_in_period_, most_in_last_period_});
  return static_cast<size_t>(most + most / 4 - needed) + kSpare;
}

void CachingAllocator::shrink_locked(size_t most_cached) noexcept {
  cached_.shrink(most_cached, [this](void* block, size_t size) { return_locked(block, size); });
}

void CachingAllocator::return_locked(void* block, size_t size) noexcept {
  give_to_system(block, size);
  stats_.reserved_bytes -= static_cast<int64_t>(size);
  ++stats_.system_calls;
}

MemoryStats CachingAllocator::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

void CachingAllocator::reset_peak() {
  std::lock_guard lock(mutex_);
  stats_.peak_bytes = stats_.allocated_bytes;
}

}  // namespace trafo
