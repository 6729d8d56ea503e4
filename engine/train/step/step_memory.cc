#include "engine/train/step/step_memory.h"

#include "engine/models/upload.h"

namespace trafo {

StepMemory::StepMemory(Context& context, Model& model, const Objective& objective,
                       const TrainOptions& options)
    : context_(context), model_(model), objective_(objective), options_(options) {}

MicroBatch StepMemory::upload(const Batch& batch, uint32_t pass, double units, bool first) const {
  return {batch, training_pass(pass), 1 / units, first};
}

void StepMemory::validate(const PackedBatchHost& batch) const {
  validate_batch(context_, batch, model_.spec());
  if (const Model* other = objective_.other_model()) validate_batch(context_, batch, other->spec());
}

DropoutPass StepMemory::training_pass(uint32_t pass) const {
  return trafo::training_pass(model_.spec(), options_, pass);
}

void StepMemory::dry_run(Context& meta, const MicroBatch& micro, const StepSums& sums) const {
  // A later micro-batch finds every gradient written; the dry run has to see the same state.
  if (!micro.first) model_.parameters().complete_grads(meta);
  const StepScope fp8(meta, &StepContext::fp8_weights, context_.step().fp8_weights);
  accumulate_gradients(meta, model_, micro, objective_, options_.recompute, sums);
}

}  // namespace trafo
