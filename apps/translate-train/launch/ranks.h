// The ranks that train one model: threads of this process, each with a device of its own, or those
// of several processes, of which this one is one.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "commands/device.h"
#include "commands/trafo_handles.h"
#include "launch/launcher.h"
#include "settings/settings.h"

namespace translate_train {

class Ranks {
 public:
  // Opens the devices of the settings. Two GPUs of one process copy from each other. More of them,
  // where NCCL can be loaded, and GPUs of several processes exchange over NCCL.
  Ranks(const Settings& settings, const Job& job);

  // Of this process.
  size_t count() const { return contexts_.size(); }
  // The lowest rank of this process.
  size_t first() const { return static_cast<size_t>(job_.rank) * count(); }
  // `rank`: of this process, among all.
  trafo_context* context(size_t rank) const { return contexts_[rank - first()].get(); }
  // "cpu, 2 threads"; "2 ranks: cuda:0 NVIDIA H200, bf16 + cuda:1 NVIDIA H200, bf16"
  std::string text(Precision precision) const;

  // How several GPUs exchange, in a sentence; empty with one GPU.
  const std::string& exchange() const { return exchange_; }

  // Calls work(rank, group) for each rank of this process, the first on this thread, and returns
  // when all are done; one rank alone has no group (null). An error of one ends the work of all. It
  // is thrown here, with the rank and its device before the message if there are several here and
  // it is not of the first.
  using Work = std::function<void(size_t rank, trafo_group* group)>;
  void run(const Work& work) const;

 private:
  using GroupId = std::array<uint8_t, TRAFO_GROUP_ID_BYTES>;
  bool is_on_gpu() const;
  void choose_transport();
  void choose_transport_of_job();
  Group join(size_t index) const;
  // Of one rank of this process. False: there is an error, which is not for others to know.
  bool tells_others(const std::exception& error) const;

  const Job job_;
  std::vector<trafo_context_options> options_;
  std::vector<std::string> names_;
  std::vector<Context> contexts_;
  int32_t transport_ = TRAFO_TRANSPORT_LOCAL;
  GroupId id_{};
  std::string exchange_;
};

}  // namespace translate_train
