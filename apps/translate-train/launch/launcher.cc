#include "launch/launcher.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <optional>

#include "commands/cli_error.h"
#include "launch/host_secret.h"
#include "text/number_text.h"

namespace translate_train {
namespace {

constexpr const char* kTokenVariable = "TRAFO_JOB_TOKEN";
constexpr int64_t kMostProcesses = 65536, kLastPort = 65535;
constexpr int64_t kLastSlurmId = 4294967295;

// The variables in which launchers of MPI tell a process its rank and the number of ranks.
struct Variables {
  const char* rank;
  const char* size;
  const char* local_rank;
  bool is_certain;  // set by mpirun alone
};
constexpr Variables kMpiLaunchers[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     true},                                             // Open MPI
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", true},  // MPICH, Intel MPI
    // Slurm sets them in every step and batch script, also where nothing uses MPI.
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", false},
};

std::optional<std::string> text_in(const char* variable) {
  const char* text = std::getenv(variable);
  if (!text || !*text) return std::nullopt;
  return text;
}

std::optional<int64_t> number_in(const char* variable, int64_t most = kMostProcesses) {
  const std::optional<std::string> value = text_in(variable);
  if (!value) return std::nullopt;
  int64_t number = -1;
  if (!parse_number(*value, number) || number < 0 || number > most)
    usage_error(
        fmt::format("the environment has {}={}, which is no number from 0 to {}; "
                    "--launcher none ignores it",
                    variable, *value, most));
  return number;
}

int64_t wanted_number(const char* variable, const std::string& launcher,
                      int64_t most = kMostProcesses) {
  const std::optional<int64_t> number = number_in(variable, most);
  if (!number)
    usage_error(fmt::format("--launcher {}: the environment has no {}: {}", launcher, variable,
                            launcher == "slurm" ? "start the processes with srun"
                                                : "start the processes with torchrun"));
  return *number;
}

void check_rank(int64_t rank, const char* rank_name, int64_t size, const char* size_name) {
  if (size >= 1 && rank < size) return;
  usage_error(fmt::format("{} is {} and {} is {}: ranks are counted from 0", rank_name, rank,
                          size_name, size));
}

// A launcher sets all its variables: a process with a part of them would train alone, although it
// was started as one of several.
[[noreturn]] void refuse_part(const std::string& present, const std::string& missing) {
  usage_error(
      fmt::format("the environment has {} but no {}: a launcher of several processes sets both; "
                  "set {} too, or give --launcher none, which trains alone",
                  present, missing, missing));
}

bool is_of_this_host(const std::string& master) {
  return master.starts_with("localhost:") || master.starts_with("127.") ||
         master.starts_with("[::1]:");
}

// Who knows the token can join the job. Ranks of one host find one in a file if none is given.
void take_token(Job& job) {
  if (const auto token = text_in(kTokenVariable)) {
    if (!is_secret(*token))
      usage_error(
          fmt::format("{} must be at least 64 hexadecimal digits, so that nobody can guess "
                      "it: export {}=$(openssl rand -hex 32); got {} characters",
                      kTokenVariable, kTokenVariable, token->size()));
    job.token = *token;
    return;
  }
  if (!is_of_this_host(job.master))
    usage_error(
        fmt::format("ranks meet at {}, and {} is not set: give all processes of the job the same "
                    "secret, as in export {}=$(openssl rand -hex 32), so that nobody else can join",
                    job.master, kTokenVariable, kTokenVariable));
  job.token = fmt::format("{} {}", host_secret(), job.master);
}

std::string master_at(const std::string& host, int64_t port) {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

Job nodes_job(const LaunchArguments& arguments) {
  Job job{.kind = Job::Kind::tcp, .launcher = "nodes"};
  if (arguments.node_rank < 0) usage_error("--nodes: --node-rank is missing, 0 to nodes - 1");
  if (arguments.master.empty())
    usage_error("--nodes: --master HOST:PORT is missing, where the node of rank 0 listens");
  job.rank = arguments.node_rank;
  job.size = arguments.nodes;
  check_rank(job.rank, "--node-rank", job.size, "--nodes");
  job.master = arguments.master;
  return job;
}

// PyTorchJob of Kubernetes sets the same variables.
Job torchrun_job(const LaunchArguments& arguments) {
  Job job{.kind = Job::Kind::tcp, .launcher = "torchrun"};
  job.rank = wanted_number("RANK", job.launcher);
  job.size = wanted_number("WORLD_SIZE", job.launcher);
  check_rank(job.rank, "RANK", job.size, "WORLD_SIZE");
  job.local_rank = number_in("LOCAL_RANK").value_or(-1);
  job.local_size = number_in("LOCAL_WORLD_SIZE").value_or(0);
  if (job.local_size > 0 && job.local_rank >= job.local_size)
    usage_error(fmt::format("LOCAL_RANK is {} and LOCAL_WORLD_SIZE is {}: ranks are counted from 0",
                            job.local_rank, job.local_size));
  if (job.local_size > job.size)
    usage_error(
        fmt::format("LOCAL_WORLD_SIZE is {} and WORLD_SIZE is {}", job.local_size, job.size));
  job.master = arguments.master;
  if (!job.master.empty()) return job;
  const auto host = text_in("MASTER_ADDR");
  if (!host) usage_error("--launcher torchrun: the environment has no MASTER_ADDR");
  // torchrun itself may listen at MASTER_PORT.
  const int64_t taken = text_in("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True" ? 1 : 0;
  job.master =
      master_at(*host, wanted_number("MASTER_PORT", job.launcher, kLastPort - taken) + taken);
  return job;
}

// Steps that run on one host at a time need different ports: 99 jobs in a row with up to 101 steps
// each have them. Of other steps, one pair in 10,000 shares one by chance.
int64_t port_of_step(int64_t job, int64_t step) {
  constexpr int64_t kFirstPort = 20000, kPorts = 10000, kStepsOfAJob = 101;
  return kFirstPort + (job % kPorts * kStepsOfAJob + step) % kPorts;
}

Job slurm_job(const LaunchArguments& arguments) {
  Job job{.kind = Job::Kind::tcp, .launcher = "slurm"};
  job.rank = wanted_number("SLURM_PROCID", job.launcher);
  const char* const size =
      text_in("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  job.size = wanted_number(size, job.launcher);
  check_rank(job.rank, "SLURM_PROCID", job.size, size);
  job.local_rank = number_in("SLURM_LOCALID").value_or(-1);
  job.master = arguments.master;
  if (!job.master.empty()) return job;
  std::optional<std::string> list = text_in("SLURM_STEP_NODELIST");
  if (!list) list = text_in("SLURM_JOB_NODELIST");
  const std::string host = first_host(list.value_or(""));
  if (host.empty())
    usage_error(
        fmt::format("--launcher slurm: SLURM_STEP_NODELIST is '{}', which names no host; give "
                    "--master HOST:PORT",
                    list.value_or("")));
  job.master =
      master_at(host, port_of_step(wanted_number("SLURM_JOB_ID", job.launcher, kLastSlurmId),
                                   number_in("SLURM_STEP_ID", kLastSlurmId).value_or(0)));
  return job;
}

std::optional<Job> mpi_job(bool asked) {
  for (const Variables& each : kMpiLaunchers) {
    if (!each.is_certain && !asked) continue;
    const std::optional<int64_t> rank = number_in(each.rank), size = number_in(each.size);
    if (!rank && !size) continue;
    // A shell in an allocation of Slurm has the size alone.
    if (!each.is_certain && (!rank || !size)) continue;
    if (!rank) refuse_part(each.size, each.rank);
    if (!size) refuse_part(each.rank, each.size);
    check_rank(*rank, each.rank, *size, each.size);
    if (!asked && *size <= 1) return std::nullopt;
    return Job{.kind = Job::Kind::mpi,
               .launcher = "mpi",
               .rank = *rank,
               .size = *size,
               .local_rank = number_in(each.local_rank).value_or(-1)};
  }
  if (asked)
    usage_error("--launcher mpi: no MPI launcher has started this process; use mpirun or srun");
  return std::nullopt;
}

// Each task of a step of srun would train by itself. Batch scripts and shells of an allocation have
// variables of Slurm too, but SLURM_PROCID is 0 there, if it is set, and the step's are missing.
void refuse_unsaid_step() {
  constexpr const char* kTasks = "SLURM_STEP_NUM_TASKS";
  const std::optional<int64_t> tasks = number_in(kTasks), rank = number_in("SLURM_PROCID");
  if (tasks && *tasks != 1)
    usage_error(
        fmt::format("srun has started {} tasks: --launcher slurm makes them the ranks of one run "
                    "(with MPI: --launcher mpi), --launcher none trains alone in each ({})",
                    *tasks, kTasks));
  if (tasks && !rank) refuse_part(kTasks, "SLURM_PROCID");
  if (tasks) return check_rank(*rank, "SLURM_PROCID", *tasks, kTasks);
  for (const char* variable : {"SLURM_STEP_ID", "SLURM_STEP_NODELIST"})
    if (text_in(variable)) refuse_part(variable, kTasks);
  if (rank.value_or(0) > 0) refuse_part(fmt::format("SLURM_PROCID={}", *rank), kTasks);
}

bool is_under_torchrun() {
  constexpr const char* kNeeded[] = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};
  const char* present = nullptr;
  const char* missing = nullptr;
  for (const char* variable : kNeeded)
    if (!missing && !text_in(variable)) missing = variable;
  // MASTER_ADDR and MASTER_PORT alone may be of a service, as Kubernetes sets them for one named
  // master.
  for (const char* variable : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"})
    if (!present && text_in(variable)) present = variable;
  if (present && missing) refuse_part(present, missing);
  if (!present) return false;
  check_rank(*number_in("RANK"), "RANK", *number_in("WORLD_SIZE"), "WORLD_SIZE");
  return *number_in("WORLD_SIZE") > 1;
}

Job found_job(const LaunchArguments& arguments) {
  if (arguments.nodes > 0) {
    if (arguments.launcher != "auto" && arguments.launcher != "none")
      usage_error(
          fmt::format("--nodes is instead of --launcher {}: give one of them", arguments.launcher));
    return nodes_job(arguments);
  }
  if (arguments.node_rank >= 0) usage_error("--node-rank: --nodes is missing");
  if (arguments.launcher == "torchrun") return torchrun_job(arguments);
  if (arguments.launcher == "slurm") return slurm_job(arguments);
  if (arguments.launcher == "mpi") return *mpi_job(true);
  if (arguments.launcher == "auto") {
    if (const auto job = mpi_job(false)) return *job;
    if (is_under_torchrun()) return torchrun_job(arguments);
    refuse_unsaid_step();
  }
  return {};
}

}  // namespace

std::string first_host(const std::string& list) {
  std::string host;
  for (size_t i = 0; i < list.size() && list[i] != ',';) {
    if (list[i] != '[') {
      host += list[i++];
      continue;
    }
    const size_t close = list.find(']', i);
    if (close == std::string::npos) return {};
    const std::string range = list.substr(i + 1, close - i - 1);
    const std::string number = range.substr(0, range.find_first_of("-,"));
    if (number.empty()) return {};
    host += number;
    i = close + 1;
  }
  return host;
}

void add_launch_flags(CLI::App& app, LaunchArguments& arguments) {
  app.add_option(
         "--launcher", arguments.launcher,
         "what has started this process. mpi: it is one rank of an MPI job, as under mpirun "
         "or srun. torchrun, slurm: it is one rank, and the environment says which. none: it "
         "trains alone. auto: mpi or torchrun with several processes, and none else; a step of "
         "srun with "
         "several tasks is refused then (default auto)")
      ->type_name("NAME")
      ->check(CLI::IsMember({"auto", "mpi", "torchrun", "slurm", "none"}))
      ->group("Machine");
  app.add_option("--nodes", arguments.nodes,
                 "train on so many nodes without a launcher: start the program on each, with the "
                 "same flags but --node-rank")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, kMostProcesses))
      ->group("Machine");
  app.add_option("--node-rank", arguments.node_rank, "the number of this node, from 0")
      ->type_name("N")
      ->check(CLI::Range(int64_t{0}, kMostProcesses - 1))
      ->group("Machine");
  app.add_option("--master", arguments.master,
                 "where rank 0 listens for the others, with --nodes, torchrun or slurm (default: "
                 "what the launcher says). All processes must have the same TRAFO_JOB_TOKEN in "
                 "the environment")
      ->type_name("HOST:PORT")
      ->group("Machine");
  app.add_option("--rank-timeout", arguments.rank_timeout,
                 "seconds that the ranks of a job wait for the slowest one, saving included "
                 "(default 600)")
      ->type_name("N")
      ->check(CLI::Range(1.0, 1e6))
      ->group("Machine");
  app.add_option("--join-timeout", arguments.join_timeout,
                 "seconds that the ranks of a job wait until all have joined (default 300)")
      ->type_name("N")
      ->check(CLI::Range(1.0, 1e6))
      ->group("Machine");
}

Job job_of(const LaunchArguments& arguments) {
  Job job = found_job(arguments);
  job.timeout = arguments.rank_timeout;
  job.join_timeout = arguments.join_timeout;
  if (job.kind == Job::Kind::tcp)
    take_token(job);
  else if (!arguments.master.empty())
    usage_error("--master is for --nodes and for --launcher torchrun or slurm");
  return job;
}

}  // namespace translate_train
