// Signals that ask to end, while something that can be cancelled runs.
#pragma once

#include <thread>

#include "trafo.h"

namespace translate_train {

// While it lives, the first SIGTERM, SIGINT, SIGHUP (a lost terminal), SIGUSR1 or SIGUSR2 (warnings
// of job schedulers) sets `cancel` (from a thread: a handler may not take locks); a SIGINT after it
// ends the process at once. SIGHUP, SIGUSR1 and SIGUSR2 stay ignored if they were, as under nohup.
// One at a time.
class SignalCancel {
 public:
  explicit SignalCancel(const trafo_cancel* cancel);
  ~SignalCancel();
  SignalCancel(const SignalCancel&) = delete;
  SignalCancel& operator=(const SignalCancel&) = delete;

  int received() const;  // the signal, 0: none
  // 128 + the signal, as a shell has it. Without one, another process of the job has received it.
  int exit_code() const;

 private:
  std::thread watcher_;
};

}  // namespace translate_train
