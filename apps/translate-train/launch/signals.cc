#include "launch/signals.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <iterator>

#include "commands/cli_error.h"

namespace translate_train {
namespace {

int pipe_ends[2] = {-1, -1};
volatile std::sig_atomic_t received_signal = 0;

constexpr int kSignals[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};
struct sigaction old_actions[std::size(kSignals)];

void handle(int number) {
  const int saved = errno;
  if (received_signal != 0 && number == SIGINT) _exit(kInterrupted);
  received_signal = number;
  const char byte = 's';
  // A full pipe means that the watcher has been told already.
  if (write(pipe_ends[1], &byte, 1) < 0) errno = saved;
  errno = saved;
}

}  // namespace

SignalCancel::SignalCancel(const trafo_cancel* cancel) {
  received_signal = 0;
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) throw CliError(kFailed, "no pipe for signals");
  watcher_ = std::thread([cancel] {
    char byte = 0;
    while (true) {
      const ssize_t count = read(pipe_ends[0], &byte, 1);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0 || byte == 'q') return;
      trafo_error_free(trafo_cancel_set(cancel));
    }
  });
  struct sigaction action {};
  action.sa_handler = handle;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    sigaction(kSignals[i], nullptr, &old_actions[i]);
    const bool always = kSignals[i] == SIGTERM || kSignals[i] == SIGINT;
    if (always || old_actions[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
  }
}

SignalCancel::~SignalCancel() {
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &old_actions[i], nullptr);
  const char byte = 'q';
  while (write(pipe_ends[1], &byte, 1) < 0 && errno == EINTR) {
  }
  watcher_.join();
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

int SignalCancel::received() const {
  return received_signal;
}

int SignalCancel::exit_code() const {
  return received_signal == 0 ? kTerminated : 128 + received_signal;
}

}  // namespace translate_train
