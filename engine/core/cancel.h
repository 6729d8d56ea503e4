// A request to stop, from any thread. It is checked between updates and between batches of a
// validation.
#pragma once

#include <atomic>

namespace trafo {

class CancelToken {
 public:
  void cancel() noexcept { cancelled_.store(true, std::memory_order_relaxed); }
  void reset() noexcept { cancelled_.store(false, std::memory_order_relaxed); }
  bool is_cancelled() const noexcept { return cancelled_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> cancelled_{false};  // lock-free: a signal handler may set it
};

}  // namespace trafo
