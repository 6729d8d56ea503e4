#include <cerrno>
#include <string>
#include <vector>

#include "engine/io/atomic_file.h"
#include "tests/reliability/io_faults.h"
#include "tests/reliability/saves/run_trials.h"
#include "tests/reliability/saves/save_faults.h"

namespace trafo::testing {
namespace {

std::vector<std::string> warnings_of(Process& process, int64_t updates) {
  std::vector<std::string> warnings;
  process.run->run(
      [&](const TrainEvent& event) {
        if (event.kind == TrainEventKind::warning) warnings.push_back(event.message);
        return 0;
      },
      nullptr, updates);
  return warnings;
}

// A run without locks and without fsync of directories warns once, says what is lost, and goes on.
void try_run(Suite& suite, const RunTrials& trials, int error) {
  const std::string label = concat("missing operations, errno ", error);
  const RunCopy run(trials.prepared());
  {
    const IoFaults faults(run.path(),
                          IoFaultPlan{IoFault::unsupported, 1, /*persistent=*/true, error});
    Process process = trials.open(run.path());
    const auto warnings = warnings_of(process, 1);
    suite.require(faults.fired(), label + ": no call was refused");
    suite.require(warnings.size() == 1, concat(label, ": ", warnings.size(), " warnings"));
    for (const char* lost : {"no file locks", "no fsync of directories"})
      suite.require(!warnings.empty() && warnings[0].find(lost) != std::string::npos &&
                        warnings[0].find(run.path().string()) != std::string::npos,
                    label + ": the warning does not say '" + lost + "'");
    suite.require(warnings_of(process, 1).empty(), label + ": a second warning");
    trials.check_end(suite, process, label);
  }
  trials.check_later_process(suite, run.path(), label);
  suite.tried();
}

// On a file system with locks nothing is given up, and other errors stay errors.
void try_present(Suite& suite, const RunTrials& trials) {
  const RunCopy run(trials.prepared());
  Process first = trials.open(run.path());
  suite.require(warnings_of(first, 1).empty(), "locks exist: a warning");
  try {
    trials.open(run.path());
    suite.failed("locks exist: a second run was not refused");
  } catch (const Error& error) {
    suite.require(mentions(error, "is in use by process"), concat("locks exist: ", error.what()));
  }
  first.run.reset();
  const IoFaults faults(run.path(), IoFaultPlan{IoFault::unsupported, 1, true, EIO});
  try {
    trials.open(run.path());
    suite.failed("flock with EIO: no error");
  } catch (const Error& error) {
    suite.require(error.code() == ErrorCode::io && mentions(error, "cannot lock"),
                  concat("flock with EIO: ", error.what()));
  }
  suite.tried();
}

void try_file(Suite& suite, int error) {
  const TemporaryDirectory folder;
  const IoFaults faults(folder.path(), IoFaultPlan{IoFault::unsupported, 1, true, error});
  write_file_atomically(folder / "file", "text");
  suite.require(faults.fired() && read_text_file(folder / "file", 100, FollowLinks::no) == "text",
                concat("a file without locks, errno ", error));
  suite.tried();
}

}  // namespace

void try_missing_operations(Suite& suite) {
  const RunTrials trials;
  for (const int error : {ENOLCK, EOPNOTSUPP, ENOSYS, EINVAL}) {
    try_run(suite, trials, error);
    try_file(suite, error);
  }
  try_present(suite, trials);
}

}  // namespace trafo::testing
