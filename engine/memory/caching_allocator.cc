#include "engine/memory/caching_allocator.h"

#include <algorithm>
#include <limits>

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

}  // namespace

CachingAllocator::~CachingAllocator() {
  release_cached_locked();
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
  } else if (!block) {
    block = os::allocate_aligned(CachedBlocks::kAlignment, size);
    if (!block) {
      release_cached_locked();
      block = os::allocate_aligned(CachedBlocks::kAlignment, size);
    }
    require(block != nullptr, ErrorCode::out_of_memory, "allocate", "the system has no ", size,
            " bytes left; ", stats_.allocated_bytes, " bytes are in use");
    stats_.reserved_bytes += static_cast<int64_t>(size);
    ++stats_.system_calls;
  }
  stats_.allocated_bytes += static_cast<int64_t>(size);
  stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.allocated_bytes);
  return block;
}

void CachingAllocator::release(void* pointer, size_t bytes) noexcept {
  if (!pointer) return;
  const size_t size = CachedBlocks::rounded(bytes);
  std::lock_guard lock(mutex_);
  stats_.allocated_bytes -= static_cast<int64_t>(size);
  const bool in_file = size >= kFileBlock && lies_in_file(pointer);
  if (kKeepBlocks && !in_file && cached_.keep(size, pointer)) return;
  in_file ? free_in_file(pointer) : os::free_aligned(pointer);
  stats_.reserved_bytes -= static_cast<int64_t>(size);
  ++stats_.system_calls;
}

void* CachingAllocator::allocate_exactly(size_t bytes) {
  const size_t size = aligned(bytes);
  void* block = os::allocate_aligned(CachedBlocks::kAlignment, size);
  require(block != nullptr, ErrorCode::out_of_memory, "allocate", "the system has no ", size,
          " bytes left");
  std::lock_guard lock(mutex_);
  ++stats_.system_calls;
  stats_.allocated_bytes += static_cast<int64_t>(size);
  stats_.reserved_bytes += static_cast<int64_t>(size);
  stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.allocated_bytes);
  return block;
}

void CachingAllocator::release_exactly(void* pointer, size_t bytes) noexcept {
  os::free_aligned(pointer);
  const auto size = static_cast<int64_t>(aligned(bytes));
  std::lock_guard lock(mutex_);
  ++stats_.system_calls;
  stats_.allocated_bytes -= size;
  stats_.reserved_bytes -= size;
}

void CachingAllocator::release_cached() noexcept {
  std::lock_guard lock(mutex_);
  release_cached_locked();
}

void CachingAllocator::release_cached_locked() noexcept {
  cached_.drain([&](void* block, size_t size) {
    os::free_aligned(block);
    stats_.reserved_bytes -= static_cast<int64_t>(size);
    ++stats_.system_calls;
  });
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
