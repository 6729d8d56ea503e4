// A run that is killed at ten random moments and continued each time ends with the same weight
// bytes as one that was not.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/cli/kill_runs.h"

namespace translate_train::testing {
namespace {

constexpr int kKills = 10;

TEST(KillResume, TenKillsLeaveTheSameWeights) {
  TemporaryFolder folder;
  ASSERT_EQ(prepare_killed_runs(folder), "");

  const auto start = std::chrono::steady_clock::now();
  const Outcome uncut = run_program(folder.path(), killed_run_command("uncut", 2));
  ASSERT_EQ(uncut.exit_code, 0) << uncut.err;
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - start);
  const std::string expected = final_weights(folder, "uncut");

  // Moments are drawn from a fixed seed; where in an update or a save they land is up to the
  // machine. On one that became faster a run may be over before them: then another is begun.
  std::mt19937 random(20240617);
  int killed = 0;
  for (int i = 0; killed < kKills; ++i) {
    ASSERT_LT(i, 5 * kKills) << "runs are over before most of the kills";
    Running running(folder.path(), killed_run_command("cut", 1 + i % 3));
    const auto pause = 20 + random() % static_cast<unsigned>(took.count() / 4 + 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(pause));
    running.signal(SIGKILL);
    const Outcome outcome = running.wait();
    if (outcome.exit_code == 128 + SIGKILL) {
      ++killed;
      continue;
    }
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_TRUE(final_weights(folder, "cut") == expected) << "after " << killed << " kills";
    std::filesystem::remove_all(folder.file("cut"));
  }
  const Outcome last = run_program(folder.path(), killed_run_command("cut", 2));
  ASSERT_EQ(last.exit_code, 0) << last.err;
  EXPECT_TRUE(final_weights(folder, "cut") == expected) << "after " << killed << " kills";
  EXPECT_EQ(differences(final_files(folder, "cut"), final_files(folder, "uncut")), "");

  for (const int threads : {1, 3, 7}) {
    const std::string run = "threads-" + std::to_string(threads);
    const Outcome other = run_program(folder.path(), killed_run_command(run, threads));
    ASSERT_EQ(other.exit_code, 0) << other.err;
    EXPECT_TRUE(final_weights(folder, run) == expected) << threads << " threads";
  }
}

}  // namespace
}  // namespace translate_train::testing
