// Forward and backward of a micro-batch on the CPU, in memory that is planned as on an accelerator.
#pragma once

#include <map>
#include <memory>
#include <span>

#include "engine/backend/meta/meta_backend.h"
#include "engine/memory/arena.h"
#include "engine/models/model.h"
#include "engine/train/batch_bucket.h"
#include "engine/train/micro_batch.h"
#include "engine/train/options.h"

namespace trafo {

// Batches are computed as they are, never filled up; the plan of the shape that each would be
// filled up to serves them all. Context, model and objective must outlive it. One thread at a time.
class HostStep {
 public:
  HostStep(Context& context, Model& model, const Objective& objective, const TrainOptions& options);
  ~HostStep();
  HostStep(const HostStep&) = delete;
  HostStep& operator=(const HostStep&) = delete;

  // Takes the memory of steps of these shapes, so that they and smaller ones need no more.
  void reserve(std::span<const BatchBucket> shapes);
  // accumulate_gradients() of the batch, `scale` times its summed loss.
  void accumulate(const PackedBatchHost& batch, const DropoutPass& pass, double scale, bool first,
                  const LossSums& sums);

  // Allocations that had no place in the arena, because a step was not what was planned.
  int64_t unplanned() const { return arena_.refused(); }

 private:
  void run(Context& context, const PackedBatchHost& batch, const DropoutPass& pass, double scale,
           bool first, const LossSums& sums);
  const ArenaPlan& plan(const BatchBucket& exact);
  void prepare_memory(size_t bytes);

  Context& context_;
  Model& model_;
  const Objective& objective_;
  TrainOptions options_;
  std::shared_ptr<MetaBackend> meta_backend_;
  Context meta_context_;
  std::map<BatchBucket, ArenaPlan> plans_;  // of filled shapes
  FittingArena arena_;
  void* memory_ = nullptr;  // the backend's, if we have taken it
};

}  // namespace trafo
