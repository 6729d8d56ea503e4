// The cancel token of a call, for code far below it, such as the readers and writers of files.
#pragma once

#include "engine/core/cancel.h"

namespace trafo {

// While it lives, stop_if_call_is_cancelled() of this thread looks at `token`; null: nothing can
// cancel. Another thread that works for the call gets the token from the one that started it.
class CancelScope {
 public:
  explicit CancelScope(const CancelToken* token) noexcept : before_(current_) { current_ = token; }
  ~CancelScope() { current_ = before_; }
  CancelScope(const CancelScope&) = delete;
  CancelScope& operator=(const CancelScope&) = delete;

  static const CancelToken* token() noexcept { return current_; }

 private:
  static constinit inline thread_local const CancelToken* current_ = nullptr;
  const CancelToken* before_;
};

// CANCELLED if the token of this thread's call is set.
inline void stop_if_call_is_cancelled(std::string_view origin) {
  stop_if_cancelled(CancelScope::token(), origin);
}

}  // namespace trafo
