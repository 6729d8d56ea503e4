#include "launch/ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <future>
#include <new>
#include <thread>

namespace translate_train {
namespace {

// A process of a job that is one of several on its host takes the GPU of its number. One that sees
// a single GPU takes that.
Settings on_own_device(Settings settings, const Job& job) {
  if (job.is_alone() || job.local_rank < 0 || settings.has(Setting::devices)) return settings;
  const std::string device = settings.has(Setting::device) ? settings.program.device : "auto";
  if (device != "auto" && device != "cuda") return settings;
  int32_t gpus = 0;
  check(trafo_device_count(TRAFO_DEVICE_CUDA, &gpus, nullptr));
  if (gpus < 2) return settings;
  if (job.local_rank >= gpus)
    usage_error(
        fmt::format("the process has local rank {}, and there are {} GPUs: start one "
                    "process for each GPU, or give --device",
                    job.local_rank, gpus));
  settings.set(Setting::device, {fmt::format("cuda:{}", job.local_rank)}, "the launcher");
  return settings;
}

// Their share of the cores, where nobody has bound them to some.
Settings with_own_threads(Settings settings, const Job& job) {
  if (job.launcher != "torchrun" || job.local_size < 2 || settings.has(Setting::cpu_threads))
    return settings;
  const int64_t cores = std::clamp(std::thread::hardware_concurrency(), 1u, 256u);
  settings.set(Setting::cpu_threads, {std::to_string(std::max<int64_t>(1, cores / job.local_size))},
               "the launcher");
  return settings;
}

// Not an error of this rank: another one has left.
bool is_consequence(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const CliError& failed) {
    return failed.trafo_code() == TRAFO_PEER_LOST;
  } catch (...) {
    return false;
  }
}

[[noreturn]] void rethrow_from(const std::exception_ptr& error, const std::string& rank) {
  try {
    std::rethrow_exception(error);
  } catch (const CliError& failed) {
    throw failed.within(rank + ": ");
  } catch (const std::bad_alloc&) {
    throw CliError(kOutOfMemory, rank + ": out of memory");
  } catch (const std::exception& failed) {
    throw CliError(kFailed, rank + ": " + failed.what());
  }
}

}  // namespace

Ranks::Ranks(const Settings& settings, const Job& job)
    : job_(job),
      options_(context_options_of(with_own_threads(on_own_device(settings, job), job))),
      names_(devices_of(settings)) {
  if (options_.size() > 1 && !job_.is_alone() && job_.launcher != "nodes")
    settings.refuse(Setting::devices,
                    fmt::format("is for one process with several ranks; under {} each process "
                                "is one rank, on --device",
                                job_.launcher));
  const std::string precision =
      settings.has(Setting::precision) ? settings.program.precision : "auto";
  for (trafo_context_options& options : options_)
    contexts_.push_back(open_training_context(options, precision));
  if (!job_.is_alone())
    choose_transport_of_job();
  else if (count() > 1)
    choose_transport();
}

bool Ranks::is_on_gpu() const {
  int32_t device = 0, index = 0;
  check(trafo_context_get_device(contexts_[0].get(), &device, &index));
  return device == TRAFO_DEVICE_CUDA;
}

void Ranks::choose_transport_of_job() {
  if (job_.kind == Job::Kind::mpi) {
    transport_ = TRAFO_TRANSPORT_MPI;
    check(trafo_group_id_new(transport_, id_.data(), id_.size()));
  } else {
    transport_ = TRAFO_TRANSPORT_TCP;
    check(trafo_group_id_of_master(job_.master.data(), job_.master.size(),
                                   reinterpret_cast<const uint8_t*>(job_.token.data()),
                                   job_.token.size(), id_.data(), id_.size()));
  }
  if (!is_on_gpu()) return;
  transport_ = TRAFO_TRANSPORT_NCCL;
  exchange_ += std::string(exchange_.empty() ? "" : "; ") + "ranks exchange over NCCL";
}

// Between two GPUs copies are faster, between more NCCL is (docs/lab/distributed-notes.md).
void Ranks::choose_transport() {
  check(trafo_group_id_new(TRAFO_TRANSPORT_LOCAL, id_.data(), id_.size()));
  if (names_[0] == "cpu") return;
  exchange_ = "ranks exchange by copies between the GPUs";
  if (count() == 2) return;
  try {
    GroupId id{};
    check(trafo_group_id_new(TRAFO_TRANSPORT_NCCL, id.data(), id.size()));
    id_ = id;
    transport_ = TRAFO_TRANSPORT_NCCL;
    exchange_ = "ranks exchange over NCCL";
  } catch (const CliError& missing) {
    if (missing.trafo_code() != TRAFO_UNSUPPORTED) throw;
    exchange_ += fmt::format(", because NCCL, which is faster for more than two, is missing: {}",
                             missing.what());
  }
}

Group Ranks::join(size_t index) const {
  auto options = with_defaults<trafo_group_options>(trafo_group_options_init);
  const bool of_mpi = job_.kind == Job::Kind::mpi;  // which knows them itself
  options.rank = of_mpi ? -1 : static_cast<int32_t>(first() + index);
  options.size = of_mpi ? 0 : static_cast<int32_t>(static_cast<size_t>(job_.size) * count());
  options.transport = transport_;
  if (job_.timeout > 0) options.timeout_s = job_.timeout;
  if (job_.join_timeout > 0) options.start_timeout_s = job_.join_timeout;
  return make<Group>(trafo_group_new, contexts_[index].get(), &options, id_.data(), id_.size());
}

std::string Ranks::text(Precision precision) const {
  std::string all;
  for (size_t rank = 0; rank < count(); ++rank)
    all +=
        (all.empty() ? "" : " + ") + device_text(contexts_[rank].get(), options_[rank], precision);
  if (job_.launcher == "nodes") return fmt::format("{} nodes: {}", job_.size, all);
  if (!job_.is_alone()) return fmt::format("{} processes of {}: {}", job_.size, job_.launcher, all);
  return count() == 1 ? all : fmt::format("{} ranks: {}", count(), all);
}

// The ranks of a job have agreed on an error of the library, or it has told the others.
bool Ranks::tells_others(const std::exception& error) const {
  if (job_.is_alone()) return true;
  const auto* of_program = dynamic_cast<const CliError*>(&error);
  return of_program == nullptr || of_program->trafo_code() == TRAFO_OK;
}

void Ranks::run(const Work& work) const {
  if (job_.is_alone() && count() == 1) return work(0, nullptr);
  std::vector<std::exception_ptr> errors(count());
  const auto work_of = [&](size_t index) {
    Group group;
    try {
      group = join(index);
      work(first() + index, group.get());
      return;
    } catch (const std::exception& error) {
      errors[index] = std::current_exception();
      const std::string_view reason = error.what();
      if (group && tells_others(error))
        trafo_error_free(trafo_group_abort(group.get(), reason.data(), reason.size()));
    }
  };
  // Nobody joins before all threads are there: the system may refuse one.
  std::promise<bool> all_there;
  const std::shared_future<bool> begin = all_there.get_future().share();
  std::vector<std::jthread> threads;
  try {
    for (size_t index = 1; index < count(); ++index)
      threads.emplace_back([&work_of, begin, index] {
        if (begin.get()) work_of(index);
      });
  } catch (...) {
    all_there.set_value(false);
    throw;
  }
  all_there.set_value(true);
  work_of(0);
  threads.clear();  // waits
  for (const bool consequences : {false, true})
    for (size_t index = 0; index < count(); ++index) {
      if (!errors[index] || is_consequence(errors[index]) != consequences) continue;
      if (index == 0) std::rethrow_exception(errors[index]);
      rethrow_from(errors[index], fmt::format("rank {} on {}", first() + index, names_[index]));
    }
}

}  // namespace translate_train
