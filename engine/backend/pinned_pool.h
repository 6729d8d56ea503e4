// Page-locked host memory that is used again: the copies of a device run at the full rate of its
// bus, and locking pages takes longer than a copy.
#pragma once

#include <cstddef>
#include <memory>

#include "engine/backend/stream_device.h"
#include "engine/memory/host_buffer.h"

namespace trafo {

class PinnedPool {
 public:
  // Memory beyond this is not page-locked.
  static constexpr size_t kMostBytes = size_t{1} << 30;

  // Null: the buffers are plain host memory. The device must outlive the pool and its buffers.
  explicit PinnedPool(StreamDevice* stream);

  // Buffers may be released on any thread, also after the pool. Throws std::bad_alloc.
  HostBuffer take(size_t bytes);

 private:
  struct Blocks;
  std::shared_ptr<Blocks> blocks_;
};

}  // namespace trafo
