// Finds out whether a user or the launcher of a job with several processes started this process.
#pragma once

#include <cstdint>
#include <string>

namespace CLI {
class App;
}

namespace translate_train {

// The flags on the command line that describe the job.
struct LaunchArguments {
  std::string launcher = "auto";
  double rank_timeout = 0;  // seconds; 0: the library's default
  double join_timeout = 0;  // the same
  int64_t nodes = 0;        // 0: not said
  int64_t node_rank = -1;   // below 0: not said
  std::string master;
};
void add_launch_flags(CLI::App& app, LaunchArguments& arguments);

// The job that this process is in.
struct Job {
  enum class Kind { alone, mpi, tcp };
  Kind kind = Kind::alone;  // how its processes exchange
  std::string launcher{};   // "mpi", "torchrun", "slurm", "nodes"; empty: alone
  int64_t rank = 0;         // of this process, counted from 0
  int64_t size = 1;         // number of processes
  int64_t local_rank = -1;  // among the ranks of this host; below 0: the launcher has not said it
  int64_t local_size = 0;   // their number; 0: not said
  std::string master{};     // HOST:PORT of rank 0, with tcp
  std::string token{};      // the secret of the job, with tcp
  double timeout = 0;       // seconds that ranks wait for each other; 0: the library's default
  double join_timeout = 0;  // the same, until all have joined

  bool is_alone() const { return kind == Kind::alone; }
};

// By the command line and the environment. auto: a process is a rank if mpirun or torchrun has
// started it with others, or if --nodes says so. Throws usage errors.
Job job_of(const LaunchArguments& arguments);

// The first host of a list as Slurm writes it: "rack[1-2]n[07-09,12],head" has "rack1n07". Empty:
// it is no list.
std::string first_host(const std::string& list);

}  // namespace translate_train
