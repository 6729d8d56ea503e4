// StepMemory on the CPU.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "engine/backend/meta/meta_backend.h"
#include "engine/memory/arena.h"
#include "engine/train/step/step_memory.h"

namespace trafo {

// Batches are not padded. A batch runs in the arena plan of the bucket that it would be padded to.
// Context, model and objective must outlive it.
class HostStepMemory final : public StepMemory {
 public:
  HostStepMemory(Context& context, Model& model, const Objective& objective,
                 const TrainOptions& options);
  ~HostStepMemory() override;

  void reserve(std::span<const BatchBucket> buckets) override;
  MicroBatch upload(const PackedBatchHost& batch, uint32_t pass, double units, bool first) override;
  int64_t unplanned_allocations() const override { return arena_.refused(); }

 private:
  void end(bool failed) noexcept override;
  const ArenaPlan& plan(const BatchBucket& exact, const std::vector<bool>& skipped);
  void prepare_memory(size_t bytes);

  std::shared_ptr<MetaBackend> meta_backend_;
  Context meta_context_;
  // By padded bucket and by the layers that layer drop skips.
  std::map<std::pair<BatchBucket, std::vector<bool>>, ArenaPlan> plans_;
  FittingArena arena_;
  std::optional<ArenaScope> in_arena_;
  void* memory_ = nullptr;  // the backend's arena, once this has used it
};

}  // namespace trafo
