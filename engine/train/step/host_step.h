// GradientStep on the CPU.
#pragma once

#include <map>
#include <memory>

#include "engine/backend/meta/meta_backend.h"
#include "engine/memory/arena.h"
#include "engine/models/upload.h"
#include "engine/train/run/options.h"
#include "engine/train/step/micro_batch.h"

namespace trafo {

// Batches are not padded. A batch runs in the arena plan of the bucket that it would be padded to.
// Context, model and objective must outlive it.
class HostStep final : public GradientStep {
 public:
  HostStep(Context& context, Model& model, const Objective& objective, const TrainOptions& options,
           const LossSums& sums);
  ~HostStep() override;

  void reserve(std::span<const BatchBucket> buckets) override;
  void accumulate(const PackedBatchHost& batch, double labels, uint32_t pass, bool first) override;
  int64_t unplanned_allocations() const override { return arena_.refused(); }

 private:
  const ArenaPlan& plan(const BatchBucket& exact, const std::vector<bool>& skipped);
  void prepare_memory(size_t bytes);

  Context& context_;
  Model& model_;
  const Objective& objective_;
  TrainOptions options_;
  LossSums sums_;
  std::shared_ptr<MetaBackend> meta_backend_;
  Context meta_context_;
  // By padded bucket and by the layers that layer drop skips.
  std::map<std::pair<BatchBucket, std::vector<bool>>, ArenaPlan> plans_;
  FittingArena arena_;
  void* memory_ = nullptr;  // the backend's arena, once this has used it
};

}  // namespace trafo
