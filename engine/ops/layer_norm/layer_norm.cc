#include "engine/ops/layer_norm/layer_norm.h"

#include "engine/ops/binary/binary.h"
#include "engine/ops/fp8/fp8_magnitudes.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/ops/row_op.h"
#include "engine/ops/row_sums.h"
#include "engine/ops/unary/unary.h"
#include "engine/ops/view/view.h"

namespace trafo::ops {
namespace {
constexpr const char* kLayerNormOp = "layer_norm";
}

Tensor layer_norm_reference(Context& context, const Tensor& x, const Tensor& gamma,
                            const Tensor& beta, double epsilon) {
  // The mean of a row is rounded, and a deviation below epsilon would be left in every element of a
  // constant row. The mean of what is left has no such error.
  const Tensor rough = subtract(context, x, mean(context, x, -1, true));
  const Tensor centred = subtract(context, rough, mean(context, rough, -1, true));
  const Tensor variance = mean(context, multiply(context, centred, centred), -1, true);
  const Tensor xhat = divide(context, centred, sqrt(context, shift(context, variance, epsilon)));
  return add(context, multiply(context, xhat, gamma), beta);
}

Tensor layer_norm(Context& context, const Tensor& x, const Tensor& gamma, const Tensor& beta,
                  double epsilon) {
  const OpRange range(context, kLayerNormOp, x, gamma, beta);
  const int64_t width = check_row_tensor(context, kLayerNormOp, "x", x);
  check_row_vector(context, kLayerNormOp, "gamma", gamma, x);
  check_row_vector(context, kLayerNormOp, "beta", beta, x);
  check_epsilon(kLayerNormOp, epsilon);
  if (!context.fused_kernels()) return layer_norm_reference(context, x, gamma, beta, epsilon);

  const Tensor in = contiguous(context, x);
  const Tensor weight = contiguous(context, gamma);
  const Tensor bias = contiguous(context, beta);
  const int64_t rows = x.numel() / width;
  const bool recorded = context.needs_grad({in, weight, bias});
  Tensor y = context.empty(x.shape(), x.dtype());
  Tensor mean, rstd, saved_mean;
  if (recorded) {
    mean = context.empty({rows}, stat_dtype(x.dtype()));
    rstd = context.empty({rows}, stat_dtype(x.dtype()));
    if (context.recompute() == Recompute::selective)
      saved_mean = context.empty({rows, 2}, stat_dtype(x.dtype()));
  }
  LayerNormForwardParams p{};
  p.dtype = x.dtype();
  p.epsilon = epsilon;
  p.rows = rows;
  p.width = width;
  p.x = in.raw();
  p.gamma = weight.raw();
  p.beta = bias.raw();
  p.y = y.raw();
  p.mean = recorded ? mean.raw() : nullptr;
  p.rstd = recorded ? rstd.raw() : nullptr;
  p.saved_mean = raw_or_null(saved_mean);
  p.largest = Fp8Magnitudes::place(context, y);
  launch(context, OpKernel::layer_norm_forward, kLayerNormOp, p);
  if (!recorded) return y;

  context.record(
      kLayerNormOp, {in, weight, bias}, {&y},
      {{"x", in, requires_grad(in) || requires_grad(weight)}, {"gamma", weight, requires_grad(in)}},
      [x = in.detach(), gamma = weight.detach(), mean, rstd, rows, width](Backward& b) {
        const Tensor dy = b.grad_output();
        const GradTarget dx = target_if_needed(b, 0);
        const GradTarget dgamma = vector_target_if_needed(b, 1, x);
        const GradTarget dbeta = vector_target_if_needed(b, 2, x);
        LayerNormBackwardParams q{};
        q.dtype = x.dtype();
        q.rows = rows;
        q.width = width;
        q.accumulate_dx = dx.accumulate;
        q.accumulate_dgamma = dgamma.accumulate;
        q.accumulate_dbeta = dbeta.accumulate;
        q.x = x.raw();
        q.gamma = gamma.raw();
        q.mean = mean.raw();
        q.rstd = rstd.raw();
        q.dy = dy.raw();
        q.dx = raw_or_null(dx.buffer);
        q.dgamma = raw_or_null(dgamma.buffer);
        q.dbeta = raw_or_null(dbeta.buffer);
        launch_with_row_sums(b, OpKernel::layer_norm_backward, kLayerNormOp, q,
                             {{1, dgamma}, {2, dbeta}});
      });
  if (saved_mean.defined())
    y.variable()->recompute = norm_recompute(in, weight, bias, saved_mean, rstd);
  return y;
}

std::function<Tensor(Context&)> norm_recompute(const Tensor& x, const Tensor& gamma,
                                               const Tensor& beta, const Tensor& saved_mean,
                                               const Tensor& rstd) {
  return [x = x.detach(), gamma = gamma.detach(), beta = beta.detach(), saved_mean,
          rstd](Context& ctx) {
    const OpRange range(ctx, kLayerNormOp, x, gamma, beta);
    Tensor y = ctx.empty(x.shape(), x.dtype());
    NormApplyParams p{};
    p.dtype = x.dtype();
    p.width = x.dim(-1);
    p.rows = x.numel() / p.width;
    p.x = x.raw();
    p.gamma = gamma.raw();
    p.beta = beta.raw();
    p.saved_mean = saved_mean.raw();
    p.rstd = rstd.raw();
    p.y = y.raw();
    p.largest = Fp8Magnitudes::place(ctx, y);
    launch(ctx, OpKernel::norm_apply, kLayerNormOp, p);
    return y;
  };
}

}  // namespace trafo::ops
