#include "engine/objective/distillation/distillation.h"

namespace trafo {
namespace {

std::optional<ops::DistillationTeacher> run_teacher(Context& context, const Model& teacher,
                                                    const Batch& batch,
                                                    const DistillationOptions& options) {
  const NoGrad no_grad(context);
  const OutputProjection output = teacher.output_projection();
  return ops::DistillationTeacher{
      nn::linear_input(context, teacher.hidden(context, batch, {}), output.weight),
      output.weight.values, output.bias, options.share, options.temperature};
}

}  // namespace

ObjectiveOutput Distillation::loss(Context& context, const Model& model, const Batch& batch,
                                   const DropoutPass& dropout, double scale) const {
  ops::LinearCrossEntropyOptions options;
  if (dropout.training && options_.share > 0)
    options.teacher = run_teacher(context, *teacher_->model, batch, options_);
  return LabelSmoothedCrossEntropy::loss(context, model, batch, dropout, scale, std::move(options));
}

}  // namespace trafo
