#include "engine/ops/unary/unary.h"

#include <cmath>

#include "engine/core/argument_error.h"
#include "engine/ops/checks.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/view/view.h"

namespace trafo {
namespace {

// Tensors that the backward of a kind reads besides the upstream gradient.
enum class Saves { nothing, input, output };

Saves saved_by(UnaryKind kind) {
  switch (kind) {
    case UnaryKind::scale:
    case UnaryKind::shift:
      return Saves::nothing;
    case UnaryKind::log:
      return Saves::input;
    default:
      return Saves::output;
  }
}

Tensor unary(Context& context, const char* op, UnaryKind kind, const Tensor& x, double factor) {
  const OpRange range(context, op, x);
  check_compute_input(context, op, "x", x);
  const Tensor input = ops::contiguous(context, x);
  Tensor y = context.empty(input.shape(), input.dtype());
  launch(context, OpKernel::unary_forward, op,
         UnaryForwardParams{input.dtype(), kind, factor, input.numel(), input.raw(), y.raw()});
  if (!context.needs_grad({input})) return y;

  const Saves saves = saved_by(kind);
  const Tensor saved = saves == Saves::input    ? input.detach()
                       : saves == Saves::output ? y.detach()
                                                : Tensor{};
  context.record(
      op, {input}, {&y}, {{saves == Saves::input ? "x" : kResult, saved}},
      [op, kind, factor, saved](Backward& b) {
        const Tensor grad = b.grad_output();
        if (kind == UnaryKind::shift) return b.add(0, grad);
        const GradTarget target = b.target(0);
        const void* values = saved.defined() ? saved.raw() : nullptr;
        launch(b.context(), OpKernel::unary_backward, op,
               UnaryBackwardParams{grad.dtype(), kind, factor, target.accumulate, grad.numel(),
                                   values, values, grad.raw(), target.buffer.raw()});
      });
  return y;
}

}  // namespace

namespace ops {

Tensor scale(Context& context, const Tensor& x, double factor) {
  return unary(context, "scale", UnaryKind::scale, x, factor);
}
Tensor shift(Context& context, const Tensor& x, double amount) {
  return unary(context, "shift", UnaryKind::shift, x, amount);
}
Tensor exp(Context& context, const Tensor& x) {
  return unary(context, "exp", UnaryKind::exp, x, 0);
}
Tensor log(Context& context, const Tensor& x) {
  return unary(context, "log", UnaryKind::log, x, 0);
}
Tensor sqrt(Context& context, const Tensor& x) {
  return unary(context, "sqrt", UnaryKind::sqrt, x, 0);
}
Tensor tanh(Context& context, const Tensor& x) {
  return unary(context, "tanh", UnaryKind::tanh, x, 0);
}
Tensor sigmoid(Context& context, const Tensor& x) {
  return unary(context, "sigmoid", UnaryKind::sigmoid, x, 0);
}
Tensor soft_cap(Context& context, const Tensor& x, double cap) {
  require_argument(std::isfinite(cap) && cap > 0, "soft_cap", "cap",
                   " must be finite and above 0, got ", cap);
  return unary(context, "soft_cap", UnaryKind::soft_cap, x, cap);
}

}  // namespace ops
}  // namespace trafo
