#include "engine/train/micro_batch.h"

#include "engine/ops/view/view.h"

namespace trafo {

void accumulate_gradients(Context& context, Model& model, const Batch& batch,
                          const TrainOptions& options, const DropoutPass& pass, double scale,
                          bool first, const LossSums& sums) {
  // A tape of its own: what the caller has recorded on the context stays as it is, and what a
  // failed step has recorded goes away.
  const TapeScope tape(context);
  const RecomputeScope recompute(context, options.recompute);
  if (first) model.parameters().zero_grad();
  const ops::CrossEntropyOutput output = [&] {
    const PhaseRange phase(context, "forward", true);
    return model.loss(context, batch, options.label_smoothing, pass, scale);
  }();
  const PhaseRange phase(context, "backward", true);
  // The upstream gradient is known to be one, and nothing has to be read before the end.
  context.backward(output.loss);
  if (first) {
    model.parameters().complete_grads(context);
    context.backend().copy(sums.loss.raw(), output.loss.raw(), sums.loss.bytes());
    context.backend().copy(sums.nll.raw(), output.nll.raw(), sums.nll.bytes());
  } else {
    accumulate_into(context, sums.loss, output.loss);
    accumulate_into(context, sums.nll, output.nll);
  }
}

}  // namespace trafo
