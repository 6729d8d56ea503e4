#include "engine/os/threads.h"

#ifdef __GLIBCXX__
#include <cxxabi.h>
#endif

namespace trafo::os {

#ifdef __GLIBCXX__
namespace {

// MinGW's GCC frees the memory of a thread's thread_local variables in the destructor of one key of
// pthreads, and calls the destructors of these variables in that of another. Keys end in the order
// in which they were created, and the one of the memory would be the first, created by the first
// use of a variable. This creates the other one before that. Clang's variables, with LLVM's C++
// library, are memory of the system, which frees it after their destructors.
[[gnu::constructor(101)]] void create_key_of_destructors() {
  abi::__cxa_thread_atexit([](void*) {}, nullptr, nullptr);
}

}  // namespace
#endif

SignalsBlocked::SignalsBlocked() noexcept {
  previous_[0] = 0;  // of no use here
}
SignalsBlocked::~SignalsBlocked() {}

int call_at_fork(void (*)(), void (*)(), void (*)()) noexcept {
  return 0;  // there is no fork()
}

void name_threads(const char*) noexcept {}

bool threads_have_name(const char*) noexcept {
  return true;
}

}  // namespace trafo::os
