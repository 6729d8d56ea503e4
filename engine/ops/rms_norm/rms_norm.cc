#include "engine/ops/rms_norm/rms_norm.h"

#include "engine/ops/bias_dropout_residual/bias_dropout_residual.h"
#include "engine/ops/binary/binary.h"
#include "engine/ops/dropout/dropout.h"
#include "engine/ops/fp8/fp8_magnitudes.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/ops/row_op.h"
#include "engine/ops/row_sums.h"
#include "engine/ops/unary/unary.h"
#include "engine/ops/view/view.h"

namespace trafo::ops {
namespace {

constexpr const char* kRmsNormOp = "rms_norm";
constexpr const char* kResidualOp = "residual_rms_norm";

RmsNormForwardParams forward_params(const Context& context, const Tensor& x, const Tensor& gamma,
                                    const Tensor& y, double epsilon) {
  RmsNormForwardParams p{};
  p.dtype = x.dtype();
  p.epsilon = epsilon;
  p.width = x.dim(-1);
  p.rows = x.numel() / p.width;
  p.x = x.raw();
  p.gamma = gamma.raw();
  p.y = y.raw();
  p.largest = Fp8Magnitudes::place(context, y);
  return p;
}

RmsNormBackwardParams backward_params(const Tensor& sum, const Tensor& gamma, const Tensor& rstd,
                                      const Tensor& dy, const GradTarget& dgamma) {
  RmsNormBackwardParams q{};
  q.dtype = sum.dtype();
  q.width = sum.dim(-1);
  q.rows = sum.numel() / q.width;
  q.sum = sum.raw();
  q.gamma = gamma.raw();
  q.rstd = rstd.raw();
  q.dy = dy.raw();
  q.dgamma = raw_or_null(dgamma.buffer);
  q.accumulate_dgamma = dgamma.accumulate;
  return q;
}

// Returns a function that computes a norm of `x` once more, bit for bit (Variable::recompute).
std::function<Tensor(Context&)> norm_recompute(const Tensor& x, const Tensor& gamma,
                                               const Tensor& rstd) {
  return [x = x.detach(), gamma = gamma.detach(), rstd](Context& ctx) {
    const OpRange range(ctx, kRmsNormOp, x, gamma);
    Tensor y = ctx.empty(x.shape(), x.dtype());
    RmsNormForwardParams p = forward_params(ctx, x, gamma, y, 0);
    p.rstd_known = true;
    p.rstd = rstd.raw();
    launch(ctx, OpKernel::rms_norm_forward, kRmsNormOp, p);
    return y;
  };
}

// Gradients of x and the residual from the gradients of the normalised tensor (`sum`) and of the
// norm.
void residual_backward(Backward& b, const Tensor& sum, const Tensor& gamma, const Tensor& rstd,
                       const Dropout& dropout) {
  const Tensor dsum = b.has_grad_output(0) ? b.grad_output(0) : Tensor{};
  if (!b.has_grad_output(1)) {  // nothing comes through the norm
    b.add(1, dsum);
    if (!dropout.active()) return b.add(0, dsum);
    if (!b.needs(0)) return;
    const GradTarget dx = b.target(0);
    BiasDropoutResidualBackwardParams q{};
    q.dtype = sum.dtype();
    q.dropout = dropout;
    q.width = sum.dim(-1);
    q.rows = sum.numel() / q.width;
    q.accumulate_dx = dx.accumulate;
    q.dsum = dsum.raw();
    q.dx = dx.buffer.raw();
    return launch(b.context(), OpKernel::bias_dropout_residual_backward, kResidualOp, q);
  }
  const Tensor dy = b.grad_output(1);
  const GradTarget dgamma = vector_target_if_needed(b, 2, sum);
  RmsNormBackwardParams q = backward_params(sum, gamma, rstd, dy, dgamma);
  q.dropout = dropout;
  q.dsum = raw_or_null(dsum);
  // Where nothing is dropped both gradients are one: written once and handed to both.
  const bool same = !dropout.active() && b.needs(0) && b.needs(1);
  const Tensor total = same ? b.context().empty(sum.shape(), sum.dtype()) : Tensor{};
  if (same) {
    q.dresidual = total.raw();
    q.largest = Fp8Magnitudes::place(b.context(), total);
    launch_with_row_sums(b, OpKernel::rms_norm_backward, kResidualOp, q, {{2, dgamma}});
    b.add(0, total);
    b.add(1, total);
    return;
  }
  const GradTarget dx = target_if_needed(b, 0);
  const GradTarget dresidual = target_if_needed(b, 1);
  q.accumulate_dx = dx.accumulate;
  q.accumulate_dresidual = dresidual.accumulate;
  q.dx = raw_or_null(dx.buffer);
  q.dresidual = raw_or_null(dresidual.buffer);
  q.largest = Fp8Magnitudes::place(b.context(), dx.buffer.defined() ? dx : dresidual);
  launch_with_row_sums(b, OpKernel::rms_norm_backward, kResidualOp, q, {{2, dgamma}});
}

}  // namespace

Tensor rms_norm_reference(Context& context, const Tensor& x, const Tensor& gamma, double epsilon) {
  const Tensor square = mean(context, multiply(context, x, x), -1, true);
  const Tensor xhat = divide(context, x, sqrt(context, shift(context, square, epsilon)));
  return multiply(context, xhat, gamma);
}

Tensor rms_norm(Context& context, const Tensor& x, const Tensor& gamma, double epsilon) {
  const OpRange range(context, kRmsNormOp, x, gamma);
  check_row_tensor(context, kRmsNormOp, "x", x);
  check_row_vector(context, kRmsNormOp, "gamma", gamma, x);
  check_epsilon(kRmsNormOp, epsilon);
  if (!context.fused_kernels()) return rms_norm_reference(context, x, gamma, epsilon);

  const Tensor in = contiguous(context, x);
  const Tensor weight = contiguous(context, gamma);
  const bool recorded = context.needs_grad({in, weight});
  Tensor y = context.empty(x.shape(), x.dtype());
  RmsNormForwardParams p = forward_params(context, in, weight, y, epsilon);
  Tensor rstd;
  if (recorded) rstd = context.empty({p.rows}, stat_dtype(x.dtype()));
  p.rstd = raw_or_null(rstd);
  launch(context, OpKernel::rms_norm_forward, kRmsNormOp, p);
  if (!recorded) return y;

  context.record(
      kRmsNormOp, {in, weight}, {&y}, {{"x", in}, {"gamma", weight, requires_grad(in)}},
      [x = in.detach(), gamma = weight.detach(), rstd](Backward& b) {
        const Tensor dy = b.grad_output();
        const GradTarget dx = target_if_needed(b, 0);
        const GradTarget dgamma = vector_target_if_needed(b, 1, x);
        RmsNormBackwardParams q = backward_params(x, gamma, rstd, dy, dgamma);
        q.accumulate_dresidual = dx.accumulate;
        q.dresidual = raw_or_null(dx.buffer);
        launch_with_row_sums(b, OpKernel::rms_norm_backward, kRmsNormOp, q, {{1, dgamma}});
      });
  if (context.recompute() == Recompute::selective)
    y.variable()->recompute = norm_recompute(in, weight, rstd);
  return y;
}

ResidualRmsNorm residual_rms_norm(Context& context, const Tensor& x, const Tensor& residual,
                                  const Tensor& gamma, double epsilon, const Dropout& dropout) {
  const OpRange range(context, kResidualOp, x, residual, gamma);
  check_row_tensor(context, kResidualOp, "x", x);
  check_compute_input(context, kResidualOp, "residual", residual);
  check_same_dtype(kResidualOp, "residual", residual, x);
  require(residual.shape() == x.shape(), ErrorCode::shape_mismatch, kResidualOp, "residual is ",
          residual.shape(), ", x is ", x.shape(), "; they must agree");
  check_row_vector(context, kResidualOp, "gamma", gamma, x);
  check_epsilon(kResidualOp, epsilon);
  check_dropout(dropout, kResidualOp);
  if (!context.fused_kernels()) {
    const Tensor sum = bias_dropout_residual_reference(context, x, {}, residual, dropout);
    return {sum, rms_norm_reference(context, sum, gamma, epsilon)};
  }

  const Tensor in = contiguous(context, x), branch = contiguous(context, residual),
               weight = contiguous(context, gamma);
  const bool recorded = context.needs_grad({in, branch, weight});
  // The first run of a checkpointed region.
  const bool checkpointed = context.recompute() == Recompute::full && !context.recording();
  ResidualRmsNorm out{context.empty(x.shape(), x.dtype()), context.empty(x.shape(), x.dtype())};
  RmsNormForwardParams p = forward_params(context, in, weight, out.normed, epsilon);
  p.dropout = dropout;
  p.residual = branch.raw();
  p.sum = out.sum.raw();
  Tensor rstd;
  if (recorded || checkpointed) rstd = context.empty({p.rows}, stat_dtype(x.dtype()));
  p.rstd = raw_or_null(rstd);
  launch(context, OpKernel::rms_norm_forward, kResidualOp, p);
  std::function<Tensor(Context&)> recompute;
  if (checkpointed || (recorded && context.recompute() == Recompute::selective))
    recompute = norm_recompute(out.sum, weight, rstd);
  if (!recorded) {
    out.recompute = std::move(recompute);
    return out;
  }

  context.record(kResidualOp, {in, branch, weight}, {&out.sum, &out.normed},
                 {{"the sum", out.sum}, {"gamma", weight}},
                 [sum = out.sum.detach(), gamma = weight.detach(), rstd, dropout](Backward& b) {
                   residual_backward(b, sum, gamma, rstd, dropout);
                 });
  out.normed.variable()->recompute = std::move(recompute);
  return out;
}

}  // namespace trafo::ops
