#include "engine/objective/distillation/distillation.h"

namespace trafo {
namespace {

ops::DistillationTeacher run_teacher(Context& context, const Model& teacher, const Batch& batch,
                                     const DistillationOptions& options) {
  const NoGrad no_grad(context);
  const OutputProjection output = teacher.output_projection();
  return ops::DistillationTeacher{
      nn::linear_input(context, teacher.hidden(context, batch, {}), output.weight),
      output.weight.values,
      output.bias,
      options.share,
      options.temperature,
      output.soft_cap};
}

}  // namespace

ObjectiveOutput Distillation::loss(Context& context, const Model& model, const Batch& batch,
                                   const DropoutPass& dropout, double scale) const {
  if (!dropout.training || options_.share == 0)
    return LabelSmoothedCrossEntropy::loss(context, model, batch, dropout, scale, {});
  return LabelSmoothedCrossEntropy::loss(
      context, model, batch, dropout, scale,
      {.teacher = run_teacher(context, *teacher_->model, batch, options_)});
}

}  // namespace trafo
