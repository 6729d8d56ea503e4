// Work that is done beside training by a separate thread, one piece at a time: writing a copy of
// the run.
#pragma once

#include <functional>
#include <future>

#include "engine/backend/pinned_pool.h"

namespace trafo {

// One thread at a time. The destructor waits for the work.
class BackgroundSave {
 public:
  // `stream` of the device that the copies come from; null: the CPU.
  explicit BackgroundSave(StreamDevice* stream) : buffers_(stream) {}

  // For the copies. Those of a save are used again by the next one.
  HostAllocator allocator() {
    return [this](size_t bytes) { return buffers_.take(bytes); };
  }
  // Starts the work; none is in flight. Without a thread to be had, it is done before the return.
  void start(std::function<void()> work);
  bool in_flight() const { return result_.valid(); }
  // Whether await() would return at once.
  bool done() const;
  // Waits for the work in flight and throws what it has thrown.
  void await() { result_.get(); }

 private:
  PinnedPool buffers_;
  std::future<void> result_;  // the one of std::async, whose destructor waits
};

}  // namespace trafo
