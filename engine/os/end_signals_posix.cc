#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <iterator>
#include <system_error>
#include <utility>

#include "engine/os/end_signals.h"

namespace trafo::os {
namespace {

int pipe_ends[2] = {-1, -1};
volatile std::sig_atomic_t received_signal = 0;
volatile std::sig_atomic_t code_of_second = 0;

constexpr int kSignals[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};
struct sigaction old_actions[std::size(kSignals)];

void handle_end_signal(int number) {
  const int saved = errno;
  if (received_signal != 0 && number == SIGINT) _exit(code_of_second);
  received_signal = number;
  const char byte = 's';
  // A full pipe means that the watcher has been told already.
  if (::write(pipe_ends[1], &byte, 1) < 0) errno = saved;
  errno = saved;
}

// Two ends that programs which are started do not inherit.
bool open_pipe(int (&ends)[2]) noexcept {
#ifdef __APPLE__
  if (::pipe(ends) != 0) return false;
  for (const int end : ends) ::fcntl(end, F_SETFD, FD_CLOEXEC);
  return true;
#else
  return ::pipe2(ends, O_CLOEXEC) == 0;
#endif
}

}  // namespace

EndSignals::EndSignals(std::function<void()> act, int exit_code) {
  received_signal = 0;
  code_of_second = exit_code;
  if (!open_pipe(pipe_ends))
    throw std::system_error(errno, std::generic_category(), "no pipe for signals");
  watcher_ = std::thread([act = std::move(act)] {
    char byte = 0;
    while (true) {
      const ssize_t count = ::read(pipe_ends[0], &byte, 1);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0 || byte == 'q') return;
      act();
    }
  });
  struct sigaction action {};
  action.sa_handler = handle_end_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    sigaction(kSignals[i], nullptr, &old_actions[i]);
    const bool always = kSignals[i] == SIGTERM || kSignals[i] == SIGINT;
    if (always || old_actions[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
  }
}

EndSignals::~EndSignals() {
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &old_actions[i], nullptr);
  const char byte = 'q';
  while (::write(pipe_ends[1], &byte, 1) < 0 && errno == EINTR) {
  }
  watcher_.join();
  ::close(pipe_ends[0]);
  ::close(pipe_ends[1]);
}

int EndSignals::received() const noexcept {
  return received_signal;
}

}  // namespace trafo::os
