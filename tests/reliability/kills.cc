// Suite 2: translate-train is killed at random moments of training and saving, and continued.
// Nothing that was saved is lost or damaged, and a run that was killed many times ends with the
// files of one that was not: each file of the run directory, to the byte.
// tests/cli/kill_resume_test.cc is its smallest form.
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <random>
#include <thread>

#include "engine/core/status.h"
#include "engine/io/checkpoint_directory.h"
#include "tests/cli/kill_runs.h"
#include "tests/reliability/suite.h"

namespace {

namespace fs = std::filesystem;
using namespace translate_train::testing;
using trafo::concat;
using trafo::testing::Suite;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

bool is_saving(const fs::path& run) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run / "ckpt", error))
    if (entry.path().filename().string().find(".tmp-") != std::string::npos) return true;
  return false;
}

class Kills {
 public:
  Kills(Suite& suite, const TemporaryFolder& folder, std::map<std::string, std::string> expected,
        milliseconds whole)
      : suite_(suite), folder_(folder), expected_(std::move(expected)), whole_(whole) {}

  int64_t killed() const { return killed_; }
  int64_t in_saves() const { return in_saves_; }
  int64_t finished() const { return finished_; }

  // One process more, which is killed if it is not done before.
  void go_on() {
    const int threads = 1 + static_cast<int>(random_() % 3);
    Running running(folder_.path(), killed_run_command(run(), threads));
    // Every other kill waits for the next save and falls into it or right after it.
    bool saw_save = false;
    if (random_() % 2 == 0) {
      const auto patience = Clock::now() + whole_;
      while (!(saw_save = is_saving(folder_.file(run()))) && Clock::now() < patience)
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      std::this_thread::sleep_for(std::chrono::microseconds(random_() % 4000));
    } else {
      std::this_thread::sleep_for(
          milliseconds(random_() % static_cast<uint64_t>(whole_.count() / 4 + 1)));
    }
    running.signal(SIGKILL);
    const Outcome outcome = running.wait();
    if (outcome.exit_code == 128 + SIGKILL) {
      ++killed_;
      in_saves_ += saw_save;
      suite_.tried();
      check_nothing_lost();
    } else {
      check_end(outcome);
    }
  }

  // The run in progress comes to its end.
  void finish() { check_end(run_program(folder_.path(), killed_run_command(run(), 2))); }

 private:
  std::string run() const { return concat("cut-", finished_); }

  // The checkpoint that RUN/latest names was acknowledged: it is written last.
  void check_nothing_lost() {
    const trafo::CheckpointDirectory checkpoints(folder_.file(run()));
    const std::string label = concat("kill ", killed_);
    try {
      acknowledged_ = std::max(acknowledged_, checkpoints.read_pointer("latest").value_or(-1));
      const trafo::NewestValid newest = checkpoints.newest_valid();
      suite_.require(newest.refused.empty(), label + ": a checkpoint is damaged");
      suite_.require(newest.update.value_or(-1) >= acknowledged_,
                     concat(label, ": checkpoint ", acknowledged_, " was saved, the newest is ",
                            newest.update.value_or(-1)));
    } catch (const trafo::Error& error) {
      suite_.failed(label + ": " + error.what());
    }
  }

  void check_end(const Outcome& outcome) {
    suite_.require(outcome.exit_code == 0,
                   concat("run ", finished_, " ends with ", outcome.exit_code, ": ", outcome.err));
    const std::string other = differences(final_files(folder_, run()), expected_);
    suite_.require(other.empty(), concat("run ", finished_, " ends with other files: ", other));
    std::error_code ignored;
    fs::remove_all(folder_.file(run()), ignored);
    ++finished_;
    acknowledged_ = -1;
  }

  Suite& suite_;
  const TemporaryFolder& folder_;
  std::map<std::string, std::string> expected_;  // every file of the run
  milliseconds whole_;                           // time of a run that is not killed
  std::mt19937_64 random_{20240617};
  int64_t killed_ = 0, in_saves_ = 0, finished_ = 0, acknowledged_ = -1;
};

}  // namespace

int main(int argc, char** argv) {
  Suite suite("kills");
  const bool long_form = trafo::testing::is_long(argc, argv);
  const int64_t wanted = long_form ? 1000 : 100;
  // The short form has its time, however slow the machine is.
  const auto end = Clock::now() + (long_form ? std::chrono::hours(12) : std::chrono::seconds(45));
  const TemporaryFolder folder;
  if (const std::string wrong = prepare_killed_runs(folder); !wrong.empty()) {
    suite.failed(wrong);
    return suite.finish();
  }
  const auto start = Clock::now();
  const Outcome uncut = run_program(folder.path(), killed_run_command("uncut", 2));
  suite.require(uncut.exit_code == 0, "the run that is not killed fails: " + uncut.err);
  const auto took = std::chrono::duration_cast<milliseconds>(Clock::now() - start);
  Kills kills(suite, folder, final_files(folder, "uncut"), took);
  while (kills.killed() < wanted && Clock::now() < end && suite.failures() < 20) kills.go_on();
  kills.finish();
  std::printf("%lld kills, %lld of them while a checkpoint was written; %lld runs to their end\n",
              static_cast<long long>(kills.killed()), static_cast<long long>(kills.in_saves()),
              static_cast<long long>(kills.finished()));
  return suite.finish();
}
