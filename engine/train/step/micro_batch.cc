#include "engine/train/step/micro_batch.h"

#include "engine/autograd/gradient_observer.h"
#include "engine/nn/fp8_weights.h"
#include "engine/nn/transformer_stack.h"

namespace trafo {
namespace {

double products(const Model& model, const Batch& batch) {
  return static_cast<double>(model.parameters().parameter_count()) *
         static_cast<double>(batch.target_in.numel());
}

bool has_fp8_layers(const Context& context) {
  const Fp8Weights* const fp8 = context.step().fp8_weights;
  return fp8 != nullptr && fp8->has_linear_layers();
}

}  // namespace

DropoutPass training_pass(const ModelSpec& spec, const TrainOptions& options, uint32_t pass) {
  const int64_t blocks = spec.decoder.layers() + (spec.encoder ? spec.encoder->layers() : 0);
  return {options.seed, pass, true,
          skipped_layers(options.seed, pass, nn::kFirstBlockDropout, static_cast<uint32_t>(blocks),
                         options.layer_drop)};
}

MicroBatchPass::MicroBatchPass(Context& context, Model& model, const MicroBatch& micro,
                               Recompute recompute)
    : context_(context),
      model_(model),
      micro_(micro),
      tape_(context),
      recompute_(context, &StepContext::recompute, recompute),
      side_work_(context, products(model, micro.batch), recompute != Recompute::none),
      magnitudes_(context, has_fp8_layers(context)) {
  if (micro.first) model.parameters().zero_grad();
}

ObjectiveOutput MicroBatchPass::forward(const Objective& objective) {
  const PhaseRange phase(context_, "forward", true);
  return objective.loss(context_, model_, micro_.batch, micro_.dropout, micro_.scale);
}

void MicroBatchPass::backward(const ObjectiveOutput& output, const StepSums& sums) {
  const PhaseRange phase(context_, "backward", true);
  // Without a gradient where layer drop skips all that is trainable.
  if (requires_grad(output.loss)) context_.backward(output.loss);
  side_work_.wait_all();
  if (micro_.first) model_.parameters().complete_grads(context_);
  sums.add(context_, output, micro_.first);
  if (GradientObserver* const observer = context_.step().observer) observer->finished();
}

void accumulate_gradients(Context& context, Model& model, const MicroBatch& micro,
                          const Objective& objective, Recompute recompute, const StepSums& sums) {
  MicroBatchPass pass(context, model, micro, recompute);
  const ObjectiveOutput output = pass.forward(objective);
  pass.backward(output, sums);
}

}  // namespace trafo
