#include <pthread.h>
#include <signal.h>

#include <cstring>
#include <initializer_list>

#include "engine/os/posix_calls.h"
#include "engine/os/threads.h"

namespace trafo::os {

SignalsBlocked::SignalsBlocked() noexcept {
  static_assert(sizeof(sigset_t) <= sizeof previous_);
  sigset_t all;
  sigfillset(&all);
  for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT})
    sigdelset(&all, fault);
  sigset_t previous;
  pthread_sigmask(SIG_BLOCK, &all, &previous);
  std::memcpy(previous_, &previous, sizeof previous);
}

SignalsBlocked::~SignalsBlocked() {
  sigset_t previous;
  std::memcpy(&previous, previous_, sizeof previous);
  pthread_sigmask(SIG_SETMASK, &previous, nullptr);
}

int call_at_fork(void (*before)(), void (*in_parent)(), void (*in_child)()) noexcept {
  return pthread_atfork(before, in_parent, in_child);
}

void name_threads(const char* name) noexcept {
  name_this_thread(name);
}

bool threads_have_name(const char* name) noexcept {
  char own[kThreadNameBytes] = {};
  return pthread_getname_np(pthread_self(), own, sizeof own) == 0 && std::strcmp(own, name) == 0;
}

}  // namespace trafo::os
