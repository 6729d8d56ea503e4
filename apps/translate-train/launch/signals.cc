#include "launch/signals.h"

#include "commands/cli_error.h"

namespace translate_train {

SignalCancel::SignalCancel(const trafo_cancel* cancel)
    : signals_([cancel] { trafo_error_free(trafo_cancel_set(cancel)); }, kInterrupted) {}

int SignalCancel::received() const {
  return signals_.received();
}

int SignalCancel::exit_code() const {
  return received() == 0 ? kTerminated : 128 + received();
}

}  // namespace translate_train
