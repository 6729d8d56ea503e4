#include "engine/ops/swiglu/swiglu.h"

#include "engine/ops/activation/activation.h"
#include "engine/ops/binary/binary.h"
#include "engine/ops/fp8/fp8_magnitudes.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/row_op.h"
#include "engine/ops/view/view.h"

namespace trafo::ops {
namespace {

constexpr const char* kSwigluOp = "swiglu";

// Of profiles and messages.
const char* name_of_gate(Activation activation) {
  require(activation == Activation::silu || activation == Activation::gelu ||
              activation == Activation::gelu_erf,
          ErrorCode::invalid_argument, kSwigluOp,
          "a gate has the activation silu, gelu or gelu_erf, not ", enum_name(activation));
  return activation == Activation::silu ? kSwigluOp : "geglu";
}

}  // namespace

Tensor gated_unit_reference(Context& context, const Tensor& x, Activation activation) {
  const int64_t width = x.dim(-1) / 2;
  const Tensor gate = slice(context, x, -1, 0, width);
  const Tensor up = slice(context, x, -1, width, 2 * width);
  return multiply(context, activation_reference(context, gate, activation), up);
}

Tensor gated_unit(Context& context, const Tensor& x, Activation activation) {
  const char* const op = name_of_gate(activation);
  const OpRange range(context, op, x);
  const int64_t both = check_row_tensor(context, op, "x", x);
  require(both % 2 == 0, ErrorCode::shape_mismatch, op,
          "x holds a gate and as many columns that it acts on, its last dimension must be even: ",
          x.shape());
  if (!context.fused_kernels()) return gated_unit_reference(context, x, activation);

  const Tensor in = contiguous(context, x);
  const int64_t rows = x.numel() / both;
  Shape shape = x.shape();
  shape[shape.rank() - 1] = both / 2;
  Tensor y = context.empty(shape, x.dtype());
  SwigluForwardParams p{};
  p.dtype = x.dtype();
  p.activation = activation;
  p.rows = rows;
  p.width = both / 2;
  p.x = in.raw();
  p.y = y.raw();
  p.largest = Fp8Magnitudes::place(context, y);
  launch(context, OpKernel::swiglu_forward, op, p);
  if (!context.needs_grad({in})) return y;

  context.record(op, {in}, {&y}, {{"x", in}}, [x = in.detach(), rows, activation](Backward& b) {
    const Tensor dy = b.grad_output();
    const GradTarget dx = b.target(0);
    SwigluBackwardParams q{};
    q.dtype = x.dtype();
    q.activation = activation;
    q.rows = rows;
    q.width = x.dim(-1) / 2;
    q.accumulate = dx.accumulate;
    q.x = x.raw();
    q.dy = dy.raw();
    q.dx = dx.buffer.raw();
    q.largest = Fp8Magnitudes::place(b.context(), dx);
    launch(b.context(), OpKernel::swiglu_backward, name_of_gate(activation), q);
  });
  if (context.recompute() == Recompute::selective)
    y.variable()->recompute = [x = in.detach(), activation](Context& ctx) {
      const NoGrad no_grad(ctx);
      return gated_unit(ctx, x, activation);
    };
  return y;
}

}  // namespace trafo::ops
