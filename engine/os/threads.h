// Threads and child processes, beyond the standard library.
#pragma once

#include <cstddef>

namespace trafo::os {

// Blocks signals on this thread while it lives. Threads that are started meanwhile inherit that.
// Faults stay deliverable: they are raised on the thread that caused them, and blocking them would
// bypass the crash handler of the host. Without effect on Windows, which runs handlers on threads
// of its own.
class SignalsBlocked {
 public:
  SignalsBlocked() noexcept;
  ~SignalsBlocked();
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  alignas(8) unsigned char previous_[128];
};

// Functions for fork(): before it, and after it in the parent and in the child. Returns an errno.
int call_at_fork(void (*before)(), void (*in_parent)(), void (*in_child)()) noexcept;

// The name of the calling thread, which the threads that it starts inherit. Windows has no such
// names: name_threads() does nothing there and threads_have_name() is true for every thread.
inline constexpr size_t kThreadNameBytes = 16;  // with the zero at the end
void name_threads(const char* name) noexcept;
bool threads_have_name(const char* name) noexcept;

}  // namespace trafo::os
