// SIGTERM and SIGINT while something that can be cancelled runs.
#pragma once

#include <thread>

#include "trafo.h"

namespace translate_train {

// While it lives, the first SIGTERM or SIGINT sets `cancel` (from a thread: a handler may not take
// locks); a second SIGINT ends the process at once. One at a time.
class SignalCancel {
 public:
  explicit SignalCancel(const trafo_cancel* cancel);
  ~SignalCancel();
  SignalCancel(const SignalCancel&) = delete;
  SignalCancel& operator=(const SignalCancel&) = delete;

  int received() const;  // the signal, 0: none

 private:
  std::thread watcher_;
};

}  // namespace translate_train
