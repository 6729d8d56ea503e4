#include "engine/backend/pinned_pool.h"

#include <mutex>

#include "engine/core/status.h"
#include "engine/memory/cached_blocks.h"

namespace trafo {

// The released blocks by size. The last owner, the pool or a buffer, gives them back to the device.
struct PinnedPool::Blocks {
  explicit Blocks(StreamDevice* device) : stream(device) {}
  Blocks(const Blocks&) = delete;
  Blocks& operator=(const Blocks&) = delete;
  ~Blocks() {
    free.drain([this](void* block, size_t) { stream->release_pinned(block); });
  }

  StreamDevice* stream;
  std::mutex mutex;
  CachedBlocks free;
  size_t bytes = 0;  // allocated
};

PinnedPool::PinnedPool(StreamDevice* stream)
    : blocks_(stream ? std::make_shared<Blocks>(stream) : nullptr) {}

HostBuffer PinnedPool::take(size_t bytes) {
  if (!blocks_ || bytes == 0) return HostBuffer(bytes);
  const std::lock_guard lock(blocks_->mutex);
  void* block = blocks_->free.take(bytes);
  if (!block && bytes <= kMostBytes - blocks_->bytes) {
    try {
      block = blocks_->stream->allocate_pinned(bytes);
      blocks_->bytes += bytes;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::out_of_memory) throw;  // plain memory is only slower
    }
  }
  if (!block) return HostBuffer(bytes);
  return {static_cast<std::byte*>(block), bytes, [blocks = blocks_, bytes](std::byte* data) {
            const std::lock_guard release_lock(blocks->mutex);
            if (blocks->free.keep(bytes, data)) return;
            blocks->stream->release_pinned(data);
            blocks->bytes -= bytes;
          }};
}

}  // namespace trafo
