// Groups of processes, started with mpirun. Without one the tests say so and skip.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace trafo {
namespace {

struct JobResult {
  int exit_code = -1;
  double seconds = 0;
  std::string said;  // by all processes and mpirun

  bool says(const std::string& part) const { return said.find(part) != std::string::npos; }
};

#define EXPECT_SAYS(result, part) EXPECT_TRUE((result).says(part)) << (result).said

JobResult run_job(const std::string& name, int processes) {
  // TRAFO_MPI_RANKS and TRAFO_MPI_LIBRARY: other builds of the program and of the plugin, of
  // mutation tests. Of Open MPI: more processes than cores, also as root, as in a container.
  const std::string command =
      "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
      "OMPI_MCA_btl_vader_single_copy_mechanism=none "
      "TRAFO_MPI_LIBRARY=\"${TRAFO_MPI_LIBRARY:-" TRAFO_MPI_FILE
      "}\" timeout 60 mpirun --oversubscribe --bind-to none -n " +
      std::to_string(processes) + " \"${TRAFO_MPI_RANKS:-" MPI_RANKS "}\" \"" + name + "\" 2>&1";
  const auto start = std::chrono::steady_clock::now();
  JobResult result;
  FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) return result;
  char part[4096];
  for (size_t count; (count = fread(part, 1, sizeof part, pipe)) > 0;)
    result.said.append(part, count);
  const int status = pclose(pipe);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

class MpiGroup : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::system("command -v mpirun >/dev/null") != 0)
      GTEST_SKIP() << "there is no mpirun; scripts/install-dependencies.sh installs one";
  }

  static void expect_all_ok(const std::string& name, int processes) {
    const JobResult result = run_job(name, processes);
    EXPECT_EQ(result.exit_code, 0) << result.said;
    for (int rank = 0; rank < processes; ++rank)
      EXPECT_SAYS(result, "rank " + std::to_string(rank) + ": ok");
  }
};

TEST_F(MpiGroup, MovesBytes) {
  for (const int processes : {1, 2, 4, 8}) expect_all_ok("bytes", processes);
}

// A linked group tells how far it is with each exchange, and calls MPI for nothing else meanwhile.
TEST_F(MpiGroup, NoticesAreTakenInBetweenCalls) {
  expect_all_ok("notices", 3);
}

TEST_F(MpiGroup, UsesTheMpiOfTheProgram) {
  expect_all_ok("program's MPI", 2);
  EXPECT_SAYS(run_job("program's MPI of one thread", 1),
              "rank 0: UNSUPPORTED MPI: the program has initialised it for one thread");
}

TEST_F(MpiGroup, RefusesWhatIsNoRankOfTheJob) {
  expect_all_ok("refusals", 3);
}

TEST_F(MpiGroup, AgreesOnTheErrorOfTheLowestRank) {
  expect_all_ok("agreement", 3);
}

TEST_F(MpiGroup, ARankThatDoesNotComeIsNamed) {
  const JobResult result = run_job("late", 3);
  for (const char* rank : {"0", "2"})
    EXPECT_SAYS(result,
                "rank " + std::string(rank) + ": PEER_LOST rank 1 has not come within 2 seconds");
}

TEST_F(MpiGroup, TheRankThatTheEarliestCallMissesIsNamed) {
  const JobResult result = run_job("calls", 3);
  for (const char* rank : {"0", "1"})
    EXPECT_SAYS(result,
                "rank " + std::string(rank) + ": PEER_LOST rank 2 has not come within 2 seconds");
}

TEST_F(MpiGroup, AHungRankEndsTheOthers) {
  const JobResult result = run_job("hung", 3);
  for (const char* rank : {"0", "2"})
    EXPECT_SAYS(result,
                "rank " + std::string(rank) + ": PEER_LOST rank 1 has not come within 2 seconds");
  EXPECT_NE(result.exit_code, 0);
  EXPECT_LT(result.seconds, 30);
}

TEST_F(MpiGroup, AKilledRankEndsTheOthers) {
  const JobResult result = run_job("killed", 3);
  EXPECT_NE(result.exit_code, 0) << result.said;
  EXPECT_SAYS(result, "process rank 1 ");
  EXPECT_LT(result.seconds, 30);
}

TEST_F(MpiGroup, AllMustJoin) {
  const JobResult result = run_job("absent", 2);
  EXPECT_SAYS(result, "rank 0: PEER_LOST MPI_Init has not ended within 1 seconds");
  EXPECT_LT(result.seconds, 15);
}

TEST_F(MpiGroup, ARankThatLeavesEndsTheOthers) {
  const JobResult left = run_job("leaves", 3);
  for (const char* rank : {"0", "1"})
    EXPECT_SAYS(left,
                "rank " + std::string(rank) + ": PEER_LOST rank 2 has left: the test says so");
  const JobResult aborted = run_job("aborted in a call", 2);
  for (const char* rank : {"0", "1"})
    EXPECT_SAYS(aborted,
                "rank " + std::string(rank) + ": PEER_LOST rank 0 has left: the test says so");
  EXPECT_SAYS(run_job("freed", 2), "rank 1: PEER_LOST rank 0 has left: its group was freed");
}

}  // namespace
}  // namespace trafo
