// Signals that ask the program to end.
#pragma once

#include <functional>
#include <thread>

namespace trafo::os {

// While it lives, the first SIGTERM, SIGINT, SIGHUP (a lost terminal), SIGUSR1 or SIGUSR2 (warnings
// of job schedulers) calls `act` on another thread: a handler may not take locks. Later ones call
// it again, but a second SIGINT ends the process at once with `exit_code`. SIGHUP, SIGUSR1 and
// SIGUSR2 stay ignored if they were, as under nohup. On Windows, Ctrl-C is SIGINT, and Ctrl-Break,
// a closed console, the end of a session and a shutdown are SIGTERM. One at a time.
class EndSignals {
 public:
  // Throws std::system_error.
  EndSignals(std::function<void()> act, int exit_code);
  ~EndSignals();
  EndSignals(const EndSignals&) = delete;
  EndSignals& operator=(const EndSignals&) = delete;

  int received() const noexcept;  // the number of the last signal; 0: none

 private:
  std::thread watcher_;
};

}  // namespace trafo::os
