#include "engine/ops/bias_act_dropout/bias_act_dropout.h"

#include "engine/ops/activation/activation_check.h"
#include "engine/ops/binary/binary.h"
#include "engine/ops/dropout/dropout.h"
#include "engine/ops/fp8/fp8_magnitudes.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/row_op.h"
#include "engine/ops/row_sums.h"
#include "engine/ops/view/view.h"

namespace trafo::ops {
namespace {
constexpr const char* kBiasActDropoutOp = "bias_act_dropout";
}

Tensor bias_act_dropout_reference(Context& context, const Tensor& x, const Tensor& bias,
                                  Activation kind, const Dropout& dropout) {
  const Tensor biased = bias.defined() ? add(context, x, bias) : x;
  const Tensor y = activation(context, biased, kind);
  return dropout.active() ? ops::dropout(context, y, dropout) : y;
}

Tensor bias_act_dropout(Context& context, const Tensor& x, const Tensor& bias, Activation kind,
                        const Dropout& dropout) {
  const OpRange range(context, kBiasActDropoutOp, x, bias);
  const int64_t width = check_row_tensor(context, kBiasActDropoutOp, "x", x);
  if (bias.defined()) check_row_vector(context, kBiasActDropoutOp, "bias", bias, x);
  check_activation(kBiasActDropoutOp, kind);
  check_dropout(dropout, kBiasActDropoutOp);
  if (!context.fused_kernels()) return bias_act_dropout_reference(context, x, bias, kind, dropout);

  const Tensor in = contiguous(context, x);
  const Tensor vector = bias.defined() ? contiguous(context, bias) : Tensor{};
  const int64_t rows = x.numel() / width;
  Tensor y = context.empty(x.shape(), x.dtype());
  BiasActDropoutForwardParams p{};
  p.dtype = x.dtype();
  p.activation = kind;
  p.dropout = dropout;
  p.rows = rows;
  p.width = width;
  p.x = in.raw();
  p.bias = raw_or_null(vector);
  p.y = y.raw();
  p.largest = Fp8Magnitudes::place(context, y);
  launch(context, OpKernel::bias_act_dropout_forward, kBiasActDropoutOp, p);
  if (!context.needs_grad({in, vector})) return y;

  // ReLU's output shows where its argument was positive and, where it is dropped, the gradient is
  // zero anyway: y is kept, which the next GEMM keeps as well, and x is freed.
  const bool from_output = kind == Activation::relu;
  const Tensor kept = from_output ? y.detach() : in.detach();
  const Tensor kept_bias = vector.defined() && !from_output ? vector.detach() : Tensor{};
  context.record(kBiasActDropoutOp, {in, vector}, {&y},
                 {{from_output ? kResult : "x", kept}, {"bias", kept_bias}},
                 [x = kept, bias = kept_bias, kind, dropout, rows, width](Backward& b) {
                   const Tensor dy = b.grad_output();
                   const GradTarget dx = target_if_needed(b, 0);
                   const GradTarget dbias = vector_target_if_needed(b, 1, x);
                   BiasActDropoutBackwardParams q{};
                   q.dtype = x.dtype();
                   q.activation = kind;
                   q.dropout = dropout;
                   q.rows = rows;
                   q.width = width;
                   q.accumulate_dx = dx.accumulate;
                   q.accumulate_dbias = dbias.accumulate;
                   q.x = x.raw();
                   q.bias = raw_or_null(bias);
                   q.dy = dy.raw();
                   q.dx = raw_or_null(dx.buffer);
                   q.dbias = raw_or_null(dbias.buffer);
                   q.largest = Fp8Magnitudes::place(b.context(), dx);
                   launch_with_row_sums(b, OpKernel::bias_act_dropout_backward, kBiasActDropoutOp,
                                        q, {{1, dbias}});
                 });
  if (context.recompute() == Recompute::selective && requires_grad(y) && !from_output)
    y.variable()->recompute = [x = kept, bias = kept_bias, kind, dropout](Context& ctx) {
      const NoGrad no_grad(ctx);
      return bias_act_dropout(ctx, x, bias, kind, dropout);
    };
  return y;
}

}  // namespace trafo::ops
