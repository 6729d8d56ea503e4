#include "engine/train/step/step_sums.h"

#include "engine/ops/view/view.h"

namespace trafo {

StepSums::StepSums(Context& context, DType model_dtype, size_t metrics)
    : values_(context.zeros({2 + static_cast<int64_t>(metrics)}, stat_dtype(model_dtype))) {}

void StepSums::add(Context& context, const ObjectiveOutput& output, bool first) const {
  require(output.metrics.size() == metric_count(), ErrorCode::internal, "objective",
          "the objective has ", metric_count(), " metrics and has computed ",
          output.metrics.size());
  const auto add_to = [&](const Tensor& sum, const Tensor& value) {
    if (first)
      context.backend().copy(sum.raw(), value.raw(), sum.bytes());
    else
      accumulate_into(context, sum, value);
  };
  add_to(loss(), output.loss);
  add_to(nll(), output.nll);
  for (size_t i = 0; i < output.metrics.size(); ++i)
    add_to(at(2 + static_cast<int64_t>(i)), output.metrics[i]);
}

void StepSums::clear(Context& context) const {
  context.backend().fill_zero(values_.raw(), values_.bytes());
}

size_t StepSums::metric_bytes() const {
  return metric_count() * dtype_size(values_.dtype());
}

const void* StepSums::metrics() const {
  return static_cast<const std::byte*>(values_.raw()) + 2 * dtype_size(values_.dtype());
}

std::vector<double> StepSums::read_metrics(const void* host_copy) const {
  std::vector<double> sums;
  for (size_t i = 0; i < metric_count(); ++i)
    sums.push_back(values_.dtype() == DType::f64
                       ? static_cast<const double*>(host_copy)[i]
                       : static_cast<double>(static_cast<const float*>(host_copy)[i]));
  return sums;
}

}  // namespace trafo
