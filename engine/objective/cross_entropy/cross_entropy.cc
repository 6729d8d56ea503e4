#include "engine/objective/cross_entropy/cross_entropy.h"

#include "engine/nn/fp8_weights.h"
#include "engine/objective/distillation/distillation.h"
#include "engine/objective/registry.h"

namespace trafo {

ObjectiveOutput LabelSmoothedCrossEntropy::loss(Context& context, const Model& model,
                                                const Batch& batch, const DropoutPass& dropout,
                                                double scale) const {
  return loss(context, model, batch, dropout, scale, {});
}

ObjectiveOutput LabelSmoothedCrossEntropy::loss(Context& context, const Model& model,
                                                const Batch& batch, const DropoutPass& dropout,
                                                double scale,
                                                ops::LinearCrossEntropyOptions options) const {
  require(!model.parameters().has_int8(), ErrorCode::unsupported, "objective",
          "a model with int8 weights has no training loss: it only translates and scores");
  const Tensor hidden = model.hidden(context, batch, dropout);
  const OutputProjection output = model.output_projection();
  options.gradients_at_once = dropout.training;
  options.fp8_weight = fp8_copy(context, output.weight);
  options.soft_cap = output.soft_cap;
  options.loss.label_smoothing = label_smoothing_;
  options.loss.weights = batch.target_weights;
  options.loss.reduction = Reduction::sum;
  options.loss.scale = scale;
  options.loss.labels_validated = batch.indices_validated;
  const ops::CrossEntropyOutput loss =
      ops::linear_cross_entropy(context, nn::linear_input(context, hidden, output.weight),
                                output.weight.values, output.bias, batch.target_out, options);
  return {loss.loss, loss.nll};
}

void LabelSmoothedCrossEntropy::check(const Model& model) const {
  require(model.spec().architecture != Architecture::encoder, ErrorCode::invalid_argument,
          "objective", "an encoder learns with the objective classification or masked-lm");
}

std::unique_ptr<Objective> make_cross_entropy(const ObjectiveOptions& options,
                                              const std::shared_ptr<const FrozenModel>& teacher) {
  if (!teacher) return std::make_unique<LabelSmoothedCrossEntropy>(options.label_smoothing);
  return std::make_unique<Distillation>(
      options.label_smoothing,
      DistillationOptions{options.teacher_weight, options.teacher_temperature}, teacher);
}

}  // namespace trafo
