#include "engine/os/threads.h"

#include <cstring>

namespace trafo::os {

// WebAssembly has no signals, no fork and no names of threads.
SignalsBlocked::SignalsBlocked() noexcept {
  std::memset(previous_, 0, sizeof previous_);
}
SignalsBlocked::~SignalsBlocked() = default;

int call_at_fork(void (*)(), void (*)(), void (*)()) noexcept {
  return 0;
}

void name_threads(const char*) noexcept {}

bool threads_have_name(const char*) noexcept {
  return true;
}

}  // namespace trafo::os
