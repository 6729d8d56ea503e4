// A request to stop, from any thread. It is checked between updates, batches, decode steps, reads
// of text and tensors of files.
#pragma once

#include <atomic>

#include "engine/core/status.h"

namespace trafo {

class CancelToken {
 public:
  void cancel() noexcept { cancelled_.store(true, std::memory_order_relaxed); }
  void reset() noexcept { cancelled_.store(false, std::memory_order_relaxed); }
  bool is_cancelled() const noexcept { return cancelled_.load(std::memory_order_relaxed); }
  // For loops that end when a flag is true, such as parallel_chunks().
  const std::atomic<bool>& flag() const noexcept { return cancelled_; }

 private:
  std::atomic<bool> cancelled_{false};  // lock-free: a signal handler may set it
};

// CANCELLED if the token is set. Null: nothing can cancel.
inline void stop_if_cancelled(const CancelToken* token, std::string_view origin) {
  require(token == nullptr || !token->is_cancelled(), ErrorCode::cancelled, origin,
          "cancelled by the caller");
}

}  // namespace trafo
