#include "engine/os/end_signals.h"

#include <atomic>
#include <csignal>
#include <functional>
#include <system_error>
#include <utility>

#include "engine/os/windows_calls.h"

namespace trafo::os {
namespace {

std::atomic<int> received_signal = 0;
std::atomic<int> code_of_second = 0;
std::function<void()> end_action;

// The system calls it on a new thread.
BOOL WINAPI handle_end_event(DWORD event) {
  const int number = event == CTRL_C_EVENT ? SIGINT : SIGTERM;
  if (received_signal.exchange(number) != 0 && number == SIGINT)
    TerminateProcess(GetCurrentProcess(), static_cast<UINT>(code_of_second.load()));
  end_action();
  // Of the others, the system ends the process when the handler returns.
  if (event != CTRL_C_EVENT && event != CTRL_BREAK_EVENT) Sleep(INFINITE);
  return TRUE;
}

}  // namespace

EndSignals::EndSignals(std::function<void()> act, int exit_code) {
  received_signal = 0;
  code_of_second = exit_code;
  end_action = std::move(act);
  if (SetConsoleCtrlHandler(handle_end_event, TRUE) == 0)
    throw std::system_error(static_cast<int>(GetLastError()), std::system_category(), "signals");
}

EndSignals::~EndSignals() {
  SetConsoleCtrlHandler(handle_end_event, FALSE);
}

int EndSignals::received() const noexcept {
  return received_signal;
}

}  // namespace trafo::os
