#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <vector>

#include "tests/reliability/io_faults.h"
#include "tests/reliability/jobs.h"
#include "tests/reliability/saves/run_trials.h"
#include "tests/reliability/saves/save_faults.h"

namespace trafo::testing {
namespace {

namespace fs = std::filesystem;
using Acknowledge = std::function<void(int64_t)>;

// The work that runs while calls fail. A process that was opened before has gone on to update
// kPaused.
struct Scenario {
  const char* name;
  bool opens;  // it opens the directory itself
  std::function<void(Process&, const Acknowledge&)> action;
};

const char* reason_of(IoFault fault) {
  return fault == IoFault::no_space ? "No space left on device" : "Input/output error";
}

Scenario save_scenario() {
  return {"save", false, [](Process& process, const Acknowledge& acknowledge) {
            process.run->save();
            acknowledge(RunTrials::kPaused);
          }};
}

// Validation, saves, deletions, pointers, the replacement of the last checkpoint, the average.
Scenario finish_scenario() {
  return {"finish", false, [](Process& process, const Acknowledge& acknowledge) {
            process.run->run([&](const TrainEvent& event) {
              if (event.kind == TrainEventKind::saved) acknowledge(event.update);
              return 0;
            });
          }};
}

Scenario open_scenario() {
  return {"open", true, [](Process&, const Acknowledge&) {}};
}

class RunFaults {
 public:
  RunFaults(Suite& suite, const RunTrials& trials) : suite_(suite), trials_(trials) {}

  // Fails call 1, `stride` + 1, ... until there are no more. Returns how many calls there are.
  int64_t try_all(const Scenario& scenario, IoFault fault, bool persistent, int64_t stride) {
    for (int64_t at = 1;; at += stride) {
      const IoFaultPlan plan{fault, at, persistent};
      const bool fired =
          fault == IoFault::kill ? try_killed(scenario, plan) : try_failing(scenario, plan);
      if (!fired) return at - 1;
      suite_.tried();
    }
  }

 private:
  std::string label(const Scenario& scenario, const IoFaultPlan& plan,
                    const std::string& where = "") const {
    return concat(scenario.name, ", ", io_fault_name(plan.fault), " at call ", plan.at,
                  plan.persistent ? " and after it" : "", where.empty() ? "" : ", ", where);
  }

  bool try_failing(const Scenario& scenario, const IoFaultPlan& plan) {
    const RunCopy run(trials_.prepared());
    std::optional<Process> process;
    if (!scenario.opens) {
      process.emplace(trials_.open(run.path()));
      process->run->run({}, nullptr, RunTrials::kPaused - RunTrials::kSaved);
    }
    int64_t acknowledged = scenario.opens ? RunTrials::kSaved : RunTrials::kSavedLater;
    std::optional<Error> error;
    std::string where;
    {
      const IoFaults faults(run.path(), plan);
      try {
        if (scenario.opens) process.emplace(trials_.open(run.path(), 99));
        scenario.action(*process, [&](int64_t update) { acknowledged = update; });
      } catch (const Error& thrown) {
        error = thrown;
      }
      if (!faults.fired()) return false;
      where = faults.first_failure();
    }
    const std::string what = label(scenario, plan, where);
    if (plan.fault == IoFault::interrupted || plan.fault == IoFault::short_transfer)
      suite_.require(!error, what + ": " + (error ? error->what() : ""));
    if (error) {
      suite_.require(error->code() == ErrorCode::io && mentions(*error, reason_of(plan.fault)) &&
                         mentions(*error, run.path().string()),
                     what + ": the error says " + error->what());
    }
    trials_.check_checkpoints(suite_, run.path(), acknowledged, what);
    if (scenario.opens && !error)
      suite_.require(
          process->run->resumed() && process->run->state().trainer.update == RunTrials::kSaved,
          what + ": not the newest checkpoint");
    if (!process) process.emplace(trials_.open(run.path(), 99));
    trials_.check_end(suite_, *process, what);
    process.reset();
    trials_.check_later_process(suite_, run.path(), what);
    return true;
  }

  // The child acknowledges through a pipe.
  bool try_killed(const Scenario& scenario, const IoFaultPlan& plan) {
    const RunCopy run(trials_.prepared());
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("no pipe");
    const pid_t child = fork();
    if (child == 0) _exit(be_killed(scenario, plan, run.path(), ends[1]));
    close(ends[1]);
    int64_t acknowledged = scenario.opens ? RunTrials::kSaved : RunTrials::kSavedLater;
    int64_t update = 0;
    while (read(ends[0], &update, sizeof(update)) == sizeof(update)) acknowledged = update;
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return false;
    const std::string what = label(scenario, plan);
    suite_.require(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, what + ": not killed");
    trials_.check_checkpoints(suite_, run.path(), acknowledged, what);
    trials_.check_resumed(suite_, run.path(), acknowledged, what);
    return true;
  }

  int be_killed(const Scenario& scenario, const IoFaultPlan& plan, const fs::path& run,
                int pipe_end) const {
    try {
      std::optional<Process> process;
      if (!scenario.opens) {
        process.emplace(trials_.open(run));
        process->run->run({}, nullptr, RunTrials::kPaused - RunTrials::kSaved);
      }
      const IoFaults faults(run, plan);
      if (scenario.opens) process.emplace(trials_.open(run, 99));
      scenario.action(*process, [&](int64_t update) {
        if (write(pipe_end, &update, sizeof(update)) != sizeof(update)) _exit(2);
      });
      return 0;
    } catch (const std::exception&) {
      return 1;
    }
  }

  Suite& suite_;
  const RunTrials& trials_;
};

}  // namespace

void try_runs(Suite& suite, bool is_long) {
  const RunTrials trials;
  Jobs jobs(suite);
  for (const Scenario& scenario : {open_scenario(), save_scenario(), finish_scenario()}) {
    for (const IoFault fault : kIoFaults) {
      const bool lasts = fault != IoFault::interrupted && fault != IoFault::kill;
      for (const bool persistent : {false, true}) {
        if (persistent && !lasts) continue;
        // The short form leaves out some calls of the end of a run, whose saves equal the previous
        // scenario's.
        const int64_t stride = is_long || std::string(scenario.name) != "finish" ? 1 : 3;
        jobs.start(scenario.name, [&](Suite& part) {
          const int64_t calls =
              RunFaults(part, trials).try_all(scenario, fault, persistent, stride);
          part.require(calls > 0, concat(scenario.name, ": there is no call to fail"));
          std::printf("%s, %s%s: %lld calls\n", scenario.name, io_fault_name(fault),
                      persistent ? " from then on" : "", static_cast<long long>(calls));
        });
      }
    }
  }
}

}  // namespace trafo::testing
