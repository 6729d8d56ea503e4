// The ranks that train one model: threads of this process, each with a device of its own, or the
// processes of a job, of which this one is one.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "device.h"
#include "launcher.h"
#include "settings.h"
#include "trafo_handles.h"

namespace translate_train {

class Ranks {
 public:
  // Opens the devices of the settings. Several GPUs exchange over NCCL where it is there.
  Ranks(const Settings& settings, const Job& job);

  // Of this process.
  size_t count() const { return contexts_.size(); }
  trafo_context* context(size_t rank) const { return contexts_[job_.is_mpi ? 0 : rank].get(); }
  // "cpu, 2 threads"; "2 ranks: cuda:0 NVIDIA H200, bf16 + cuda:1 NVIDIA H200, bf16"
  std::string text(Precision precision) const;

  // How several GPUs exchange, in a sentence; empty: there are none.
  const std::string& exchange() const { return exchange_; }

  // Calls work(rank, group) for each, rank 0 on this thread, and returns when all are done; one
  // rank has no group (null). An error of one ends the work of all. It is thrown here, with the
  // rank and its device before the message unless it is rank 0 or all have the same. In a job it
  // calls work() once, for the rank that this process is.
  using Work = std::function<void(size_t rank, trafo_group* group)>;
  void run(const Work& work) const;

 private:
  using GroupId = std::array<uint8_t, TRAFO_GROUP_ID_BYTES>;
  void choose_transport();
  Group join(size_t rank) const;
  void run_in_job(const Work& work) const;

  const Job job_;
  std::vector<trafo_context_options> options_;
  std::vector<std::string> names_;
  std::vector<Context> contexts_;
  int32_t transport_ = TRAFO_TRANSPORT_LOCAL;
  GroupId id_{};
  std::string exchange_;
};

}  // namespace translate_train
