#include "ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <future>
#include <new>
#include <thread>

namespace translate_train {
namespace {

// As the rank that this process has in the job.
Group join_job(trafo_context* context, const Job& job) {
  std::array<uint8_t, TRAFO_GROUP_ID_BYTES> id;
  check(trafo_group_id_new(TRAFO_TRANSPORT_MPI, id.data(), id.size()));
  auto options = with_defaults<trafo_group_options>(trafo_group_options_init);
  options.transport = TRAFO_TRANSPORT_MPI;
  options.rank = -1;
  options.size = 0;
  if (job.timeout > 0) options.timeout_s = job.timeout;
  return make<Group>(trafo_group_new, context, &options, id.data(), id.size());
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
    throw CliError(failed.exit_code(), rank + ": " + failed.what(), failed.trafo_code());
  } catch (const std::bad_alloc&) {
    throw CliError(kOutOfMemory, rank + ": out of memory");
  } catch (const std::exception& failed) {
    throw CliError(kFailed, rank + ": " + failed.what());
  }
}

}  // namespace

Ranks::Ranks(const Settings& settings, const Job& job)
    : job_(job), options_(context_options_of(settings)), names_(devices_of(settings)) {
  if (job_.is_mpi && options_.size() > 1)
    settings.refuse("devices",
                    "is for one process with several ranks; in a job of MPI each process "
                    "is one rank, on --device");
  for (size_t rank = 0; rank < options_.size(); ++rank)
    contexts_.push_back(make<Context>(trafo_context_new, &options_[rank]));
  if (count() > 1) choose_transport();
}

void Ranks::choose_transport() {
  if (names_[0] != "cpu") {
    try {
      check(trafo_group_id_new(TRAFO_TRANSPORT_NCCL, id_.data(), id_.size()));
      transport_ = TRAFO_TRANSPORT_NCCL;
      exchange_ = "ranks exchange over NCCL";
      return;
    } catch (const CliError& error) {
      if (error.trafo_code() != TRAFO_UNSUPPORTED) throw;
      exchange_ = std::string("ranks exchange by copies that they wait for: ") + error.what();
      std::replace(exchange_.begin(), exchange_.end(), '\n', ' ');
    }
  }
  check(trafo_group_id_new(TRAFO_TRANSPORT_LOCAL, id_.data(), id_.size()));
}

Group Ranks::join(size_t rank) const {
  auto options = with_defaults<trafo_group_options>(trafo_group_options_init);
  options.rank = static_cast<int32_t>(rank);
  options.size = static_cast<int32_t>(count());
  options.transport = transport_;
  return make<Group>(trafo_group_new, context(rank), &options, id_.data(), id_.size());
}

std::string Ranks::text(Precision precision) const {
  std::string all;
  for (size_t rank = 0; rank < count(); ++rank)
    all += (all.empty() ? "" : " + ") + device_text(context(rank), options_[rank], precision);
  if (job_.is_mpi) return fmt::format("{} processes of MPI: {}", job_.size, all);
  return count() == 1 ? all : fmt::format("{} ranks: {}", count(), all);
}

void Ranks::run_in_job(const Work& work) const {
  const Group group = join_job(context(0), job_);
  trafo_group_info info{};
  check(trafo_group_get_info(group.get(), &info, sizeof info));
  try {
    work(static_cast<size_t>(info.rank), group.get());
  } catch (const CliError& error) {
    // The ranks have agreed on an error of the library, or it has told the others.
    if (error.trafo_code() != TRAFO_OK) throw;
    const std::string_view reason = error.what();
    trafo_error_free(trafo_group_abort(group.get(), reason.data(), reason.size()));
    throw;
  }
}

void Ranks::run(const Work& work) const {
  if (job_.is_mpi) return run_in_job(work);
  if (count() == 1) return work(0, nullptr);
  std::vector<std::exception_ptr> errors(count());
  const auto work_of = [&](size_t rank) {
    Group group;
    try {
      group = join(rank);
      work(rank, group.get());
      return;
    } catch (const std::exception& error) {
      errors[rank] = std::current_exception();
      const std::string_view reason = error.what();
      if (group) trafo_error_free(trafo_group_abort(group.get(), reason.data(), reason.size()));
    }
  };
  // Nobody joins before all threads are there: the system may refuse one.
  std::promise<bool> all_there;
  const std::shared_future<bool> begin = all_there.get_future().share();
  std::vector<std::jthread> threads;
  try {
    for (size_t rank = 1; rank < count(); ++rank)
      threads.emplace_back([&work_of, begin, rank] {
        if (begin.get()) work_of(rank);
      });
  } catch (...) {
    all_there.set_value(false);
    throw;
  }
  all_there.set_value(true);
  work_of(0);
  threads.clear();  // waits
  for (const bool consequences : {false, true})
    for (size_t rank = 0; rank < count(); ++rank) {
      if (!errors[rank] || is_consequence(errors[rank]) != consequences) continue;
      if (rank == 0) std::rethrow_exception(errors[rank]);
      rethrow_from(errors[rank], fmt::format("rank {} on {}", rank, names_[rank]));
    }
}

}  // namespace translate_train
