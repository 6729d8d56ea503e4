// A loop over independent elements on several threads of the host.
#pragma once

#include <atomic>
#include <cstdint>

#include "engine/core/function_ref.h"

namespace trafo {

// Calls work(begin, end) for ranges of at most `chunk` elements that together are 0 .. count - 1,
// on up to `threads` threads, the caller's among them. Fewer threads work if no more can be
// started. If calls throw, the exception of the first range is rethrown; ranges after it may not
// have been worked on. `stop`: no further range is begun once it was seen to be true. The result is
// then false, whatever `stop` is by the end.
bool parallel_chunks(int64_t count, int64_t chunk, int threads,
                     FunctionRef<void(int64_t begin, int64_t end)> work,
                     const std::atomic<bool>* stop = nullptr);

// Threads for such a loop beside an accelerator, where the host has nothing else to do.
int idle_host_threads();

}  // namespace trafo
