// Long calls of the SentencePiece library, on a separate thread that the caller need not wait for.
#pragma once

#include <functional>

#include "engine/core/cancel.h"

namespace trafo {

// Runs `work` on a thread of the library and rethrows its exception. CANCELLED when `cancel` is set
// while may_leave() is true: SentencePiece cannot be stopped, so `work` goes on and must own what
// it uses. The next call waits for it, and so does the end of the process or of the library. While
// may_leave() is false, the work is expected to notice the token itself. It is asked every 20 ms.
// std::bad_alloc: the system starts no thread.
void run_library_call(std::function<void()> work, const CancelToken* cancel,
                      const std::function<bool()>& may_leave);

// Waits for work that a caller has left. CANCELLED when `cancel` is set.
void wait_for_left_calls(const CancelToken* cancel);

}  // namespace trafo
