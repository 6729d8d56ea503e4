#include <random>
#include <vector>

#include "engine/io/atomic_file.h"
#include "tests/reliability/io_faults.h"
#include "tests/reliability/jobs.h"
#include "tests/reliability/saves/disk_model.h"
#include "tests/reliability/saves/run_trials.h"
#include "tests/reliability/saves/save_faults.h"

namespace trafo::testing {

namespace {

constexpr size_t kParts = 20;  // in a process each

// A run from its preparation to its end on a disk that forgets what was not synced: whatever the
// moment and whatever it forgets, the newest checkpoint that was acknowledged is there and whole.
// Every kParts-th of the orders, from `part` on.
void lose_power(Suite& suite, const RunTrials& trials, size_t part, size_t orders) {
  const RunCopy run(trials.prepared());
  DiskModel disk(run.path());
  struct Acknowledged {
    size_t changes;
    int64_t update;
  };
  std::vector<Acknowledged> acknowledged{{0, RunTrials::kSaved}};
  {
    const IoFaults recording(run.path(), {}, &disk);
    Process process = trials.open(run.path());
    process.run->run([&](const TrainEvent& event) {
      if (event.kind == TrainEventKind::saved)
        acknowledged.push_back({disk.changes(), event.update});
      return 0;
    });
  }
  if (part == 0)
    std::printf("power loss: %zu changes, %zu acknowledged saves, %zu orders\n", disk.changes(),
                acknowledged.size() - 1, orders);
  std::mt19937_64 random(17 + part);
  for (size_t i = part; i < orders; i += kParts) {
    const size_t count = random() % (disk.changes() + 1);
    int64_t newest = 0;
    for (const Acknowledged& each : acknowledged)
      if (each.changes <= count) newest = each.update;
    const TemporaryDirectory after;
    disk.crash(count, random, after / "run");
    const std::string label = concat("power loss ", i, " after change ", count);
    suite.tried();
    trials.check_checkpoints(suite, after / "run", newest, label);
    if (i / kParts % 20 == part) trials.check_resumed(suite, after / "run", newest, label);
  }
}

// A file that was written atomically is there after every loss of power after the call, and is the
// old one or the new one after a loss of power in it.
void lose_power_of_a_file(Suite& suite) {
  const TemporaryDirectory folder;
  spill(folder / "out", "old");
  DiskModel disk(folder.path());
  {
    const IoFaults recording(folder.path(), {}, &disk);
    write_file_atomically(folder / "out", std::string_view("new"));
  }
  std::mt19937_64 random(5);
  for (int i = 0; i < 400; ++i) {
    const bool is_done = i % 2 == 0;
    const size_t count = is_done ? disk.changes() : random() % (disk.changes() + 1);
    const TemporaryDirectory after;
    disk.crash(count, random, after / "disk");
    suite.tried();
    const std::string found = slurp(after / "disk/out");
    suite.require(found == "new" || (!is_done && found == "old"),
                  concat("power loss of a file after change ", count, ": it holds '", found, "'"));
  }
}

}  // namespace

void try_power_loss(Suite& suite, bool is_long) {
  const RunTrials trials;
  const size_t orders = is_long ? 20000 : 1000;
  lose_power_of_a_file(suite);
  Jobs jobs(suite);
  // Each records a separate run: leftovers are removed once the process that made them is gone, or
  // is the process that looks.
  for (size_t part = 0; part < kParts; ++part)
    jobs.start("power loss", [&](Suite& own) { lose_power(own, trials, part, orders); });
}

}  // namespace trafo::testing
