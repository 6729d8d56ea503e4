// What started this process: a user, or the launcher of a job that has one process for each rank.
#pragma once

#include <cstdint>
#include <string>

namespace CLI {
class App;
}

namespace translate_train {

// What the command line says of it.
struct LaunchArguments {
  std::string launcher = "auto";
  double rank_timeout = 0;  // seconds; 0: the library's default
};
void add_launch_flags(CLI::App& app, LaunchArguments& arguments);

// The job that this process is in.
struct Job {
  bool is_mpi = false;  // its processes are ranks of one group
  int64_t rank = 0;     // of this process
  int64_t size = 1;     // number of processes
  double timeout = 0;   // seconds that ranks wait for each other; 0: the library's default
};

// By --launcher and the environment. auto: a process is a rank if mpirun has started it with
// others. Throws usage errors.
Job job_of(const LaunchArguments& arguments);

}  // namespace translate_train
