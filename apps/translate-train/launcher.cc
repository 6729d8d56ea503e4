#include "launcher.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "cli_error.h"

namespace translate_train {
namespace {

// The variables in which launchers tell a process its rank and the number of ranks.
struct Variables {
  const char* rank;
  const char* size;
  bool is_certain;  // set by mpirun alone
};
constexpr Variables kLaunchers[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", true},  // Open MPI
    {"PMI_RANK", "PMI_SIZE", true},                          // MPICH, Intel MPI
    // Slurm sets them in every step and batch script, also where nothing uses MPI.
    {"SLURM_PROCID", "SLURM_NTASKS", false},
};

std::optional<int64_t> number_in(const char* variable) {
  const char* text = std::getenv(variable);
  if (!text) return std::nullopt;
  const std::string_view value(text);
  int64_t number = -1;
  const auto [stop, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || stop != value.data() + value.size() || number < 0)
    usage_error(
        fmt::format("the environment has {}={}, which is no number of processes; "
                    "--launcher none ignores it",
                    variable, value));
  return number;
}

}  // namespace

void add_launch_flags(CLI::App& app, LaunchArguments& arguments) {
  app.add_option(
         "--launcher", arguments.launcher,
         "what has started this process. mpi: it is one rank of an MPI job, as under mpirun "
         "or srun. none: it trains alone. auto: mpi under mpirun with several processes "
         "(default auto)")
      ->type_name("NAME")
      ->check(CLI::IsMember({"auto", "mpi", "none"}))
      ->group("Machine");
  app.add_option("--rank-timeout", arguments.rank_timeout,
                 "seconds that the ranks of a job wait for the slowest one, saving included "
                 "(default 600; until all have joined: 300)")
      ->type_name("N")
      ->check(CLI::Range(1.0, 1e6))
      ->group("Machine");
}

Job job_of(const LaunchArguments& arguments) {
  Job job;
  job.is_mpi = arguments.launcher == "mpi";
  job.timeout = arguments.rank_timeout;
  if (arguments.launcher == "none") return job;
  for (const Variables& each : kLaunchers) {
    if (!each.is_certain && !job.is_mpi) continue;
    const std::optional<int64_t> rank = number_in(each.rank), size = number_in(each.size);
    if (!rank || !size) continue;
    job.is_mpi = job.is_mpi || *size > 1;
    if (job.is_mpi) job.rank = *rank, job.size = *size;
    return job;
  }
  if (job.is_mpi)
    usage_error("--launcher mpi: no MPI launcher has started this process; use mpirun or srun");
  return job;
}

}  // namespace translate_train
