// Starts threads of the library. They depend on nothing that the thread which starts them has set:
// they compute in the default floating-point environment, and no signal handler of the host runs on
// them.
#pragma once

#include <future>
#include <thread>
#include <utility>

#include "engine/core/numeric/float_environment.h"
#include "engine/os/threads.h"

namespace trafo {

namespace internal {

template <class Work>
auto in_default_environment(Work work) {
  return [work = std::move(work)]() mutable {
    const DefaultFloatEnvironment environment;
    return work();
  };
}

}  // namespace internal

// Throws std::system_error if the system starts no thread.
template <class Thread = std::thread, class Work>
Thread start_thread(Work work) {
  const os::SignalsBlocked blocked;
  return Thread(internal::in_default_environment(std::move(work)));
}

// The same for work with a result. The destructor of the result waits.
template <class Work>
auto start_task(Work work) {
  const os::SignalsBlocked blocked;
  return std::async(std::launch::async, internal::in_default_environment(std::move(work)));
}

}  // namespace trafo
