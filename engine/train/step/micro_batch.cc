#include "engine/train/step/micro_batch.h"

#include "engine/autograd/gradient_watch.h"
#include "engine/models/upload.h"
#include "engine/nn/fp8_weights.h"
#include "engine/nn/transformer_stack.h"
#include "engine/ops/fp8/fp8_magnitudes.h"
#include "engine/ops/view/view.h"
#include "engine/runtime/side_work.h"

namespace trafo {

DropoutPass training_pass(const ModelSpec& spec, const TrainOptions& options, uint32_t pass) {
  const int64_t blocks = spec.decoder.layers() + (spec.encoder ? spec.encoder->layers() : 0);
  return {options.seed, pass, true,
          skipped_layers(options.seed, pass, nn::kFirstBlockDropout, static_cast<uint32_t>(blocks),
                         options.layer_drop)};
}

void accumulate_gradients(Context& context, Model& model, const Batch& batch,
                          const Objective& objective, Recompute recompute, const DropoutPass& pass,
                          double scale, bool first, const LossSums& sums) {
  // A separate tape keeps the caller's recorded nodes untouched, and a failed step leaves no nodes.
  const TapeScope tape(context);
  const RecomputeScope recompute_scope(context, recompute);
  const double products = static_cast<double>(model.parameters().parameter_count()) *
                          static_cast<double>(batch.target_in.numel());
  SideWork side_work(context.backend(), products, recompute != Recompute::none);
  const Fp8Weights* fp8 = model.parameters().fp8_weights();
  const ops::Fp8Magnitudes magnitudes(context, fp8 && fp8->has_linear_layers());
  if (first) model.parameters().zero_grad();
  const ops::CrossEntropyOutput output = [&] {
    const PhaseRange phase(context, "forward", true);
    return objective.loss(context, model, batch, pass, scale);
  }();
  const PhaseRange phase(context, "backward", true);
  // Without a gradient where layer drop skips all that is trainable.
  if (requires_grad(output.loss)) context.backward(output.loss);
  side_work.wait_all();
  if (first) {
    model.parameters().complete_grads(context);
    context.backend().copy(sums.loss.raw(), output.loss.raw(), sums.loss.bytes());
    context.backend().copy(sums.nll.raw(), output.nll.raw(), sums.nll.bytes());
  } else {
    accumulate_into(context, sums.loss, output.loss);
    accumulate_into(context, sums.nll, output.nll);
  }
  if (GradientObserver* observer = GradientWatch::active()) observer->finished();
}

void validate_for_training(const Context& context, const PackedBatchHost& batch,
                           const Model& model) {
  validate_batch(context, batch, model.spec());
  if (model.teacher()) validate_batch(context, batch, model.teacher()->model->spec());
}

}  // namespace trafo
