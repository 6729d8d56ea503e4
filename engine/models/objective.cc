#include "engine/models/objective.h"

#include "engine/ops/linear_cross_entropy/linear_cross_entropy.h"

namespace trafo {
namespace {

ops::DistillationTeacher run_teacher(Context& context, const Model& teacher, const Batch& batch,
                                     const Distillation& distillation) {
  const NoGrad no_grad(context);
  const OutputProjection output = teacher.output_projection();
  return {nn::linear_input(context, teacher.hidden(context, batch, {}), output.weight),
          output.weight.values, output.bias, distillation.share, distillation.temperature};
}

}  // namespace

ops::CrossEntropyOutput LabelSmoothedCrossEntropy::loss(Context& context, const Model& model,
                                                        const Batch& batch,
                                                        const DropoutPass& dropout,
                                                        double scale) const {
  require(!model.parameters().has_int8(), ErrorCode::unsupported, "objective",
          "a model with int8 weights has no training loss: it only translates and scores");
  ops::LinearCrossEntropyOptions options;
  if (dropout.training && distillation_.share > 0 && model.teacher())
    options.teacher = run_teacher(context, *model.teacher()->model, batch, distillation_);
  const Tensor hidden = model.hidden(context, batch, dropout);
  const OutputProjection output = model.output_projection();
  options.gradients_at_once = dropout.training;
  options.fp8_weight = output.weight.fp8;
  options.loss.label_smoothing = label_smoothing_;
  options.loss.weights = batch.target_weights;
  options.loss.reduction = Reduction::sum;
  options.loss.scale = scale;
  options.loss.labels_validated = batch.indices_validated;
  return ops::linear_cross_entropy(context, nn::linear_input(context, hidden, output.weight),
                                   output.weight.values, output.bias, batch.target_out, options);
}

Tensor label_nll(Context& context, const Model& model, const Batch& batch, int32_t ignore_label) {
  ops::CrossEntropyOptions options;
  options.ignore_label = ignore_label;
  options.reduction = Reduction::none;
  options.labels_validated = batch.indices_validated;
  return ops::cross_entropy(context, model.logits(context, batch), batch.target_out, options).nll;
}

}  // namespace trafo
