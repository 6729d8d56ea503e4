// Memory in which the micro-batches of a training step are computed.
#pragma once

#include <cstdint>
#include <exception>
#include <span>

#include "engine/data/packed_batch.h"
#include "engine/models/batch_bucket.h"
#include "engine/train/step/micro_batch.h"

namespace trafo {

// A dry run plans the layout of an arena. HostStepMemory is for the CPU. DeviceStepMemory is for
// accelerators, where it also records and replays graphs. One thread at a time.
//
// A micro-batch: Scope, upload(), then forward and backward unless has_graph(), the end of the
// Scope, replay().
class StepMemory {
 public:
  StepMemory(Context& context, Model& model, const Objective& objective,
             const TrainOptions& options);
  virtual ~StepMemory() = default;
  StepMemory(const StepMemory&) = delete;
  StepMemory& operator=(const StepMemory&) = delete;

  // Allocates the memory for steps of these sizes. They and smaller ones then allocate nothing.
  virtual void reserve(std::span<const BatchBucket> buckets) = 0;

  // Ends what upload() has begun. Tensors of the step must be released before.
  class Scope {
   public:
    explicit Scope(StepMemory& memory) : memory_(memory) {}
    ~Scope() { memory_.end(std::uncaught_exceptions() > exceptions_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    StepMemory& memory_;
    int exceptions_ = std::uncaught_exceptions();
  };

  // The batch's share of a mean over `units`, with the dropout masks of forward pass `pass`.
  // Allocations come from planned memory until the Scope ends. `batch` may change once this has
  // returned.
  virtual MicroBatch upload(const PackedBatchHost& batch, uint32_t pass, double units,
                            bool first) = 0;
  // The same for a batch that is on the device already. Its step is not planned.
  MicroBatch upload(const Batch& batch, uint32_t pass, double units, bool first) const;

  // Whether a graph has recorded forward and backward of the uploaded batch.
  virtual bool has_graph() const { return false; }
  // Launches the graph, if there is one or the Scope that has ended has recorded it. UNSUPPORTED:
  // the step cannot be recorded.
  virtual void replay() {}

  // Forgets steps that were recorded as graphs.
  virtual void drop_graphs() {}
  // Allocations that the arena could not serve, of all steps.
  virtual int64_t unplanned_allocations() const { return 0; }

 protected:
  // `failed`: an exception leaves the Scope.
  virtual void end(bool failed) noexcept = 0;

  // The batch fits the model and the objective's other one, which may know fewer positions.
  void validate(const PackedBatchHost& batch) const;
  DropoutPass training_pass(uint32_t pass) const;
  // Forward and backward on the meta device.
  void dry_run(Context& meta, const MicroBatch& micro, const StepSums& sums) const;

  Context& context_;
  Model& model_;
  const Objective& objective_;
  TrainOptions options_;
};

}  // namespace trafo
