// Forward and backward of one micro-batch of an update.
#pragma once

#include "engine/models/batch.h"
#include "engine/objective/objective.h"
#include "engine/ops/fp8/fp8_magnitudes.h"
#include "engine/runtime/side_work.h"
#include "engine/train/run/options.h"
#include "engine/train/step/step_sums.h"

namespace trafo {

// A micro-batch on the device.
struct MicroBatch {
  Batch batch;
  DropoutPass dropout;
  double scale = 1;   // of its loss
  bool first = true;  // overwrites the flat gradient and the sums; others add to them
};

// The dropout masks and the skipped layers of forward pass `pass` of a training run.
DropoutPass training_pass(const ModelSpec& spec, const TrainOptions& options, uint32_t pass);

// forward(), then backward(). The flat gradient is complete after backward(). Neither waits for
// the device. Context, model and micro-batch must outlive it.
class MicroBatchPass {
 public:
  MicroBatchPass(Context& context, Model& model, const MicroBatch& micro, Recompute recompute);

  // The scaled loss, summed over the batch.
  ObjectiveOutput forward(const Objective& objective);
  void backward(const ObjectiveOutput& output, const StepSums& sums);

 private:
  Context& context_;
  Model& model_;
  const MicroBatch& micro_;
  // A separate tape keeps the caller's recorded nodes untouched, and a failed step leaves no nodes.
  TapeScope tape_;
  StepScope<Recompute> recompute_;
  SideWork side_work_;
  ops::Fp8Magnitudes magnitudes_;
};

// Both at once, outside a training step.
void accumulate_gradients(Context& context, Model& model, const MicroBatch& micro,
                          const Objective& objective, Recompute recompute, const StepSums& sums);

}  // namespace trafo
