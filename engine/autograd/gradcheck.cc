#include "engine/autograd/gradcheck.h"

#include <cmath>

#include "engine/core/numeric/philox.h"

namespace trafo {
namespace {

// An upstream gradient for each output, for the analytic and the numeric side.
std::vector<Tensor> draw_upstream(Context& context, const std::vector<Tensor>& outputs,
                                  uint64_t seed) {
  std::vector<Tensor> upstream;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].defined() || outputs[i].dtype() != DType::f64) {
      upstream.emplace_back();
      continue;
    }
    PhiloxStream random(seed, i);
    std::vector<double> values(static_cast<size_t>(outputs[i].numel()));
    for (double& v : values) v = random.uniform(-1, 1);
    upstream.push_back(context.from_values<double>(values, outputs[i].shape()));
  }
  return upstream;
}

double contract(Context& context, const std::vector<Tensor>& outputs,
                const std::vector<Tensor>& upstream) {
  double total = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!upstream[i].defined()) continue;
    require(outputs[i].is_contiguous(), ErrorCode::invalid_argument, "gradcheck", "output ", i,
            " is a strided view; make it contiguous");
    const auto a = context.values<double>(outputs[i]), b = context.values<double>(upstream[i]);
    for (size_t j = 0; j < a.size(); ++j) total += a[j] * b[j];
  }
  return total;
}

}  // namespace

GradcheckResult gradcheck(Context& context, const GradcheckFn& fn,
                          const std::vector<Tensor>& inputs, const GradcheckOptions& options) {
  require(context.device().kind == DeviceKind::cpu, ErrorCode::unsupported, "gradcheck",
          "runs on the CPU, in float64");
  std::vector<Tensor> leaves;
  for (const Tensor& input : inputs) {
    require(input.is_contiguous(), ErrorCode::invalid_argument, "gradcheck",
            "inputs must be contiguous; take strided views inside the function");
    Tensor leaf = input.detach();
    if (leaf.dtype() == DType::f64) set_requires_grad(leaf, true);
    leaves.push_back(leaf);
  }

  std::vector<Tensor> upstream;
  {
    TapeScope scope(context);
    const std::vector<Tensor> outputs = fn(context, leaves);
    upstream = draw_upstream(context, outputs, options.seed);
    context.tape().backward(context, outputs, upstream);
  }

  GradcheckResult result;
  NoGrad no_grad(context);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].dtype() != DType::f64) continue;
    const Tensor grad = grad_of(leaves[i]);
    std::vector<double> analytic(static_cast<size_t>(inputs[i].numel()), 0.0);
    if (grad.defined()) analytic = context.values<double>(grad);
    double* element = inputs[i].data<double>();
    for (size_t j = 0; j < analytic.size(); ++j) {
      const double kept = element[j];
      element[j] = kept + options.eps;
      const double above = contract(context, fn(context, inputs), upstream);
      element[j] = kept - options.eps;
      const double below = contract(context, fn(context, inputs), upstream);
      element[j] = kept;
      const double numeric = (above - below) / (2 * options.eps);
      const double error = std::abs(analytic[j] - numeric) - options.rtol * std::abs(numeric);
      ++result.checked;
      if (error > result.worst_error) result.worst_error = error;
      if (!(error <= options.atol) && result.ok) {  // NaN fails too
        result.ok = false;
        result.message =
            concat("input ", i, ", element ", j, ": analytic ", analytic[j], ", numeric ", numeric);
      }
    }
  }
  return result;
}

}  // namespace trafo
