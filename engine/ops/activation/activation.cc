#include "engine/ops/activation/activation.h"

#include <array>

#include "engine/ops/activation/activation_check.h"
#include "engine/ops/binary/binary.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/ops/row_op.h"
#include "engine/ops/unary/unary.h"
#include "engine/ops/view/view.h"

namespace trafo {

namespace ops {
namespace {

constexpr const char* kActivationOp = "activation";

// max(0, x); at a tie the first operand, the zero, takes the gradient.
Tensor relu_reference(Context& context, const Tensor& x) {
  const Shape column{x.numel(), 1};  // beside a column of zeros, whatever the rank of x
  const std::array<Tensor, 2> operands = {context.zeros(column, x.dtype()),
                                          reshape(context, x, column)};
  return reshape(context, max(context, ops::concat(context, operands, -1), -1), x.shape());
}

Tensor gelu_reference(Context& context, const Tensor& x) {
  const double sqrt_2_over_pi = 0.79788456080286535588;
  const Tensor cube = multiply(context, multiply(context, x, x), x);
  const Tensor u = scale(context, add(context, x, scale(context, cube, 0.044715)), sqrt_2_over_pi);
  return multiply(context, scale(context, x, 0.5), shift(context, tanh(context, u), 1));
}

Tensor gelu_erf_reference(Context& context, const Tensor& x) {
  const double sqrt_half = 0.70710678118654752440;
  const Tensor cumulative = shift(context, erf(context, scale(context, x, sqrt_half)), 1);
  return multiply(context, scale(context, x, 0.5), cumulative);
}

}  // namespace

Tensor activation_reference(Context& context, const Tensor& x, Activation kind) {
  switch (kind) {
    case Activation::relu:
      return relu_reference(context, x);
    case Activation::gelu:
      return gelu_reference(context, x);
    case Activation::gelu_erf:
      return gelu_erf_reference(context, x);
    case Activation::silu:
      break;
  }
  return multiply(context, x, sigmoid(context, x));
}

Tensor activation(Context& context, const Tensor& x, Activation kind) {
  const OpRange range(context, kActivationOp, x);
  check_compute_input(context, kActivationOp, "x", x);
  check_activation(kActivationOp, kind);
  if (!context.fused_kernels()) return activation_reference(context, x, kind);

  const Tensor in = contiguous(context, x);
  Tensor y = context.empty(x.shape(), x.dtype());
  launch(context, OpKernel::activation_forward, kActivationOp,
         ActivationForwardParams{x.dtype(), kind, x.numel(), in.raw(), y.raw()});
  if (context.needs_grad({in})) {
    context.record(kActivationOp, {in}, {&y}, {{"x", in}}, [x = in.detach(), kind](Backward& b) {
      const Tensor dy = b.grad_output();
      const GradTarget dx = b.target(0);
      launch(b.context(), OpKernel::activation_backward, kActivationOp,
             ActivationBackwardParams{x.dtype(), kind, dx.accumulate, x.numel(), x.raw(), dy.raw(),
                                      dx.buffer.raw()});
    });
  }
  return y;
}

}  // namespace ops
}  // namespace trafo
