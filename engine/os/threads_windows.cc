#include "engine/os/threads.h"

namespace trafo::os {

SignalsBlocked::SignalsBlocked() noexcept {}
SignalsBlocked::~SignalsBlocked() {}

int call_at_fork(void (*)(), void (*)(), void (*)()) noexcept {
  return 0;  // there is no fork()
}

void name_threads(const char*) noexcept {}

bool threads_have_name(const char*) noexcept {
  return true;
}

}  // namespace trafo::os
