// Forward and backward of one micro-batch of an update.
#pragma once

#include <span>

#include "engine/data/packed_batch.h"
#include "engine/models/batch_bucket.h"
#include "engine/models/objective.h"
#include "engine/train/run/options.h"

namespace trafo {

// The losses of an update's micro-batches, summed on the device: [1] each, stat_dtype of the model.
struct LossSums {
  Tensor loss, nll;

  LossSums() = default;
  LossSums(Context& context, DType model_dtype)
      : loss(context.zeros({1}, stat_dtype(model_dtype))),
        nll(context.zeros(loss.shape(), loss.dtype())) {}
};

// The dropout masks and the skipped layers of forward pass `pass` of a training run.
DropoutPass training_pass(const ModelSpec& spec, const TrainOptions& options, uint32_t pass);

// Computes `scale` times the summed loss of the batch and its gradient. The first micro-batch of an
// update overwrites the flat gradient and `sums`, the others add to them. The flat gradient is
// complete after each. Does not wait for the device.
void accumulate_gradients(Context& context, Model& model, const Batch& batch,
                          const Objective& objective, Recompute recompute, const DropoutPass& pass,
                          double scale, bool first, const LossSums& sums);

// validate_batch() for the model and for its teacher, which may know fewer positions.
void validate_for_training(const Context& context, const PackedBatchHost& batch,
                           const Model& model);

// Computes the gradients of micro-batches that are in host memory, in an arena whose layout a dry
// run has planned. One class for accelerators (DeviceStep) and one for the CPU (HostStep). One
// thread at a time.
class GradientStep {
 public:
  GradientStep() = default;
  virtual ~GradientStep() = default;
  GradientStep(const GradientStep&) = delete;
  GradientStep& operator=(const GradientStep&) = delete;

  // Allocates the memory for steps of these sizes. They and smaller ones then allocate nothing.
  virtual void reserve(std::span<const BatchBucket> buckets) = 0;
  // accumulate_gradients() of the batch's share of a mean over `labels`, with the dropout masks of
  // forward pass `pass`. `batch` may change once this has returned.
  virtual void accumulate(const PackedBatchHost& batch, double labels, uint32_t pass,
                          bool first) = 0;
  // Forgets steps that were recorded as graphs.
  virtual void drop_graphs() {}
  // Allocations that the arena could not serve, of all steps.
  virtual int64_t unplanned_allocations() const { return 0; }
};

}  // namespace trafo
