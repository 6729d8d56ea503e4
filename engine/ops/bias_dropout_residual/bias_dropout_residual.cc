#include "engine/ops/bias_dropout_residual/bias_dropout_residual.h"

#include "engine/ops/binary/binary.h"
#include "engine/ops/dropout/dropout.h"
#include "engine/ops/fp8/fp8_magnitudes.h"
#include "engine/ops/layer_norm/layer_norm.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/row_op.h"
#include "engine/ops/row_sums.h"
#include "engine/ops/view/view.h"

namespace trafo::ops {
namespace {

constexpr const char* kBiasDropoutResidualOp = "bias_dropout_residual";
constexpr const char* kNormOp = "bias_dropout_residual_norm";

void check_add_norm(const Context& context, const char* op, const Tensor& x, const Tensor& bias,
                    const Tensor& residual, const Dropout& dropout) {
  check_row_tensor(context, op, "x", x);
  check_compute_input(context, op, "residual", residual);
  check_same_dtype(op, "residual", residual, x);
  require(residual.shape() == x.shape(), ErrorCode::shape_mismatch, op, "residual is ",
          residual.shape(), ", x is ", x.shape(), "; they must agree");
  if (bias.defined()) check_row_vector(context, op, "bias", bias, x);
  check_dropout(dropout, op);
}

BiasDropoutResidualForwardParams forward_params(const Tensor& x, const Tensor& bias,
                                                const Tensor& residual, const Dropout& dropout,
                                                const Tensor& sum) {
  BiasDropoutResidualForwardParams p{};
  p.dtype = x.dtype();
  p.dropout = dropout;
  p.width = x.dim(-1);
  p.rows = x.numel() / p.width;
  p.x = x.raw();
  p.bias = raw_or_null(bias);
  p.residual = residual.raw();
  p.sum = sum.raw();
  return p;
}

Tensor contiguous_or_none(Context& context, const Tensor& tensor) {
  return tensor.defined() ? contiguous(context, tensor) : Tensor{};
}

}  // namespace

Tensor bias_dropout_residual_reference(Context& context, const Tensor& x, const Tensor& bias,
                                       const Tensor& residual, const Dropout& dropout) {
  const Tensor biased = bias.defined() ? add(context, x, bias) : x;
  return add(context, residual, dropout.active() ? ops::dropout(context, biased, dropout) : biased);
}

ResidualNorm bias_dropout_residual_norm_reference(Context& context, const Tensor& x,
                                                  const Tensor& bias, const Tensor& residual,
                                                  const Tensor& gamma, const Tensor& beta,
                                                  double epsilon, const Dropout& dropout) {
  const Tensor sum = bias_dropout_residual_reference(context, x, bias, residual, dropout);
  return {sum, layer_norm_reference(context, sum, gamma, beta, epsilon)};
}

Tensor bias_dropout_residual(Context& context, const Tensor& x, const Tensor& bias,
                             const Tensor& residual, const Dropout& dropout) {
  const OpRange range(context, kBiasDropoutResidualOp, x, bias, residual);
  check_add_norm(context, kBiasDropoutResidualOp, x, bias, residual, dropout);
  if (!context.fused_kernels())
    return bias_dropout_residual_reference(context, x, bias, residual, dropout);

  const Tensor in = contiguous(context, x);
  const Tensor vector = contiguous_or_none(context, bias);
  const Tensor branch = contiguous(context, residual);
  Tensor sum = context.empty(x.shape(), x.dtype());
  launch(context, OpKernel::bias_dropout_residual_forward, kBiasDropoutResidualOp,
         forward_params(in, vector, branch, dropout, sum));
  if (!context.needs_grad({in, vector, branch})) return sum;

  context.record(kBiasDropoutResidualOp, {in, vector, branch}, {&sum}, {},
                 [shape = x.shape(), dtype = x.dtype(), dropout](Backward& b) {
                   const Tensor dsum = b.grad_output();
                   // The residual's gradient is dsum itself, and so is x's where nothing is
                   // dropped: handed on, not copied.
                   b.add(2, dsum);
                   const bool same = !dropout.active();
                   if (same) b.add(0, dsum);
                   const bool dx_wanted = b.needs(0) && !same;
                   if (!dx_wanted && !b.needs(1)) return;
                   const int64_t width = shape.back();
                   const GradTarget dx = dx_wanted ? b.target(0) : GradTarget{};
                   const GradTarget dbias = vector_target_if_needed(b, 1, dsum);
                   BiasDropoutResidualBackwardParams q{};
                   q.dtype = dtype;
                   q.dropout = dropout;
                   q.rows = element_count(shape) / width;
                   q.width = width;
                   q.accumulate_dx = dx.accumulate;
                   q.accumulate_dbias = dbias.accumulate;
                   q.dsum = dsum.raw();
                   q.dx = raw_or_null(dx.buffer);
                   q.dbias = raw_or_null(dbias.buffer);
                   q.largest = Fp8Magnitudes::place(b.context(), dx);
                   launch_with_row_sums(b, OpKernel::bias_dropout_residual_backward,
                                        kBiasDropoutResidualOp, q, {{1, dbias}});
                 });
  return sum;
}

ResidualNorm bias_dropout_residual_norm(Context& context, const Tensor& x, const Tensor& bias,
                                        const Tensor& residual, const Tensor& gamma,
                                        const Tensor& beta, double epsilon,
                                        const Dropout& dropout) {
  const OpRange range(context, kNormOp, x, bias, residual, gamma, beta);
  check_add_norm(context, kNormOp, x, bias, residual, dropout);
  check_row_vector(context, kNormOp, "gamma", gamma, x);
  check_row_vector(context, kNormOp, "beta", beta, x);
  check_epsilon(kNormOp, epsilon);
  if (!context.fused_kernels())
    return bias_dropout_residual_norm_reference(context, x, bias, residual, gamma, beta, epsilon,
                                                dropout);

  const Tensor inputs[] = {contiguous(context, x), contiguous_or_none(context, bias),
                           contiguous(context, residual), contiguous(context, gamma),
                           contiguous(context, beta)};
  const bool recorded = context.needs_grad({inputs[0], inputs[1], inputs[2], inputs[3], inputs[4]});
  const int64_t rows = x.numel() / x.dim(-1);
  ResidualNorm out{context.empty(x.shape(), x.dtype()), context.empty(x.shape(), x.dtype())};
  Tensor mean, rstd, saved_mean;
  BiasDropoutResidualForwardParams p =
      forward_params(inputs[0], inputs[1], inputs[2], dropout, out.sum);
  p.epsilon = epsilon;
  p.gamma = inputs[3].raw();
  p.beta = inputs[4].raw();
  p.normed = out.normed.raw();
  // The first run of a checkpointed region.
  const bool checkpointed = context.recompute() == Recompute::full && !context.recording();
  if (recorded || checkpointed) {
    mean = context.empty({rows}, stat_dtype(x.dtype()));
    rstd = context.empty({rows}, stat_dtype(x.dtype()));
    p.mean = mean.raw();
    p.rstd = rstd.raw();
    if (context.recompute() == Recompute::selective || checkpointed)
      saved_mean = context.empty({rows, 2}, stat_dtype(x.dtype()));
    p.saved_mean = raw_or_null(saved_mean);
  }
  p.largest = Fp8Magnitudes::place(context, out.normed);
  launch(context, OpKernel::bias_dropout_residual_forward, kNormOp, p);
  std::function<Tensor(Context&)> recompute;
  if (saved_mean.defined())
    recompute = norm_recompute(out.sum, inputs[3], inputs[4], saved_mean, rstd);
  if (!recorded) {
    out.recompute = std::move(recompute);
    return out;
  }

  Tensor* const outputs[] = {&out.sum, &out.normed};
  context.record(
      kNormOp, inputs, outputs, {{"the sum", out.sum}, {"gamma", inputs[3]}},
      [sum = out.sum.detach(), gamma = inputs[3].detach(), mean, rstd, dropout](Backward& b) {
        const int64_t width = sum.dim(-1);
        const DType dtype = sum.dtype();
        const Tensor dsum = b.has_grad_output(0) ? b.grad_output(0) : Tensor{};
        const Tensor dnormed = b.has_grad_output(1) ? b.grad_output(1) : Tensor{};
        const GradTarget dresidual = target_if_needed(b, 2);
        // Where nothing is dropped, x has the gradient of the residual: handed on, written once.
        const bool same =
            !dropout.active() && b.needs(0) && dresidual.buffer.defined() && !dresidual.accumulate;
        const GradTarget dx = same ? GradTarget{} : target_if_needed(b, 0);
        const GradTarget dbias = vector_target_if_needed(b, 1, sum);
        // Nothing comes through the norm of an output that nobody used.
        const GradTarget dgamma =
            dnormed.defined() ? vector_target_if_needed(b, 3, sum) : GradTarget{};
        const GradTarget dbeta =
            dnormed.defined() ? vector_target_if_needed(b, 4, sum) : GradTarget{};
        BiasDropoutResidualBackwardParams q{};
        q.dtype = dtype;
        q.dropout = dropout;
        q.rows = sum.numel() / width;
        q.width = width;
        q.accumulate_dx = dx.accumulate;
        q.accumulate_dresidual = dresidual.accumulate;
        q.accumulate_dbias = dbias.accumulate;
        q.accumulate_dgamma = dgamma.accumulate;
        q.accumulate_dbeta = dbeta.accumulate;
        q.sum = sum.raw();
        q.gamma = gamma.raw();
        q.mean = mean.raw();
        q.rstd = rstd.raw();
        q.dsum = raw_or_null(dsum);
        q.dnormed = raw_or_null(dnormed);
        q.dx = raw_or_null(dx.buffer);
        q.dresidual = raw_or_null(dresidual.buffer);
        q.dbias = raw_or_null(dbias.buffer);
        q.dgamma = raw_or_null(dgamma.buffer);
        q.dbeta = raw_or_null(dbeta.buffer);
        q.largest = Fp8Magnitudes::place(b.context(), dx.buffer.defined() ? dx : dresidual);
        launch_with_row_sums(b, OpKernel::bias_dropout_residual_backward, kNormOp, q,
                             {{1, dbias}, {3, dgamma}, {4, dbeta}});
        if (same) b.add(0, dresidual.buffer);
      });
  out.normed.variable()->recompute = std::move(recompute);
  return out;
}

}  // namespace trafo::ops
