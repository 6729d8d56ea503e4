// Signals that ask to end, while something that can be cancelled runs.
#pragma once

#include "engine/os/end_signals.h"
#include "trafo.h"

namespace translate_train {

// While it lives, a signal of os::EndSignals sets `cancel`, and a second SIGINT ends the process.
// One at a time.
class SignalCancel {
 public:
  explicit SignalCancel(const trafo_cancel* cancel);

  int received() const;  // the signal, 0: none
  // 128 + the signal, as a shell has it. Without one, another process of the job has received it.
  int exit_code() const;

 private:
  trafo::os::EndSignals signals_;
};

}  // namespace translate_train
