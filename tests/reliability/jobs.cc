#include "tests/reliability/jobs.h"

#include <poll.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <stdexcept>
#include <thread>
#include <utility>

// Of the runtime of clang's counters, where a build has them (tests/tools/coverage.py).
extern "C" int __llvm_profile_write_file() __attribute__((weak));

namespace trafo::testing {
namespace {

struct Counts {
  int64_t tried = 0, failed = 0;
};

size_t processors() {
  if (const char* jobs = std::getenv("TRAFO_JOBS"))
    return static_cast<size_t>(std::max(1, std::atoi(jobs)));
  return std::max(1u, std::thread::hardware_concurrency());
}

}  // namespace

Jobs::Jobs(Suite& suite) : suite_(suite), at_once_(processors()) {}

Jobs::~Jobs() {
  finish();
}

void Jobs::start(const std::string& name, const std::function<void(Suite&)>& part) {
  while (running_.size() >= at_once_) collect_one();
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("no pipe");
  std::fflush(stdout);
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("no process");
  if (child == 0) {
    close(ends[0]);
    Suite own(suite_.name());
    try {
      part(own);
    } catch (const std::exception& error) {
      own.failed(name + ": " + error.what());
    }
    const Counts counts{own.trials(), own.failures()};
    std::fflush(stdout);
    // exit() would write them, but it would also destroy what threads of the parent still hold.
    if (__llvm_profile_write_file != nullptr) __llvm_profile_write_file();
    const bool told = write(ends[1], &counts, sizeof counts) == sizeof counts;
    _exit(told ? 0 : 1);
  }
  close(ends[1]);
  running_.push_back({child, ends[0], name});
}

void Jobs::finish() {
  while (!running_.empty()) collect_one();
}

void Jobs::collect_one() {
  // A part is at its end when it writes its counts or its end of the pipe is gone.
  std::vector<pollfd> waiting;
  for (const Running& each : running_) waiting.push_back({each.pipe, POLLIN, 0});
  while (poll(waiting.data(), waiting.size(), -1) < 0)
    if (errno != EINTR) throw std::runtime_error("cannot wait for the parts of a suite");
  const auto ready = std::find_if(waiting.begin(), waiting.end(),
                                  [](const pollfd& each) { return each.revents != 0; });
  const auto at = running_.begin() + (ready - waiting.begin());
  Counts counts;
  const bool told = read(at->pipe, &counts, sizeof counts) == sizeof counts;
  close(at->pipe);
  int status = 0;
  while (waitpid(at->pid, &status, 0) < 0 && errno == EINTR) {
  }
  suite_.tried(counts.tried);
  suite_.add_failures(counts.failed);
  if (!told) suite_.failed(at->name + ": its process ended before it was done");
  running_.erase(at);
}

}  // namespace trafo::testing
