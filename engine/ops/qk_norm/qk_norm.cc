#include "engine/ops/qk_norm/qk_norm.h"

#include <array>

#include "engine/ops/op_kernel.h"
#include "engine/ops/rms_norm/rms_norm.h"
#include "engine/ops/row_op.h"
#include "engine/ops/view/view.h"

namespace trafo::ops {
namespace {

constexpr const char* kQkNormOp = "qk_norm";

void check_gamma(const Context& context, const char* name, const Tensor& gamma, const Tensor& x,
                 const char* width_name, int64_t width) {
  check_compute_input(context, kQkNormOp, name, gamma);
  check_same_dtype(kQkNormOp, name, gamma, x);
  require(gamma.rank() == 1 && gamma.dim(0) >= 1 && width >= 1 && width % gamma.dim(0) == 0,
          ErrorCode::shape_mismatch, kQkNormOp, name, " must be a vector whose size divides ",
          width_name, " (", width, "), its shape is ", gamma.shape());
}

NormedGroups groups_of(const Tensor& gamma, int64_t width) {
  return {width / gamma.dim(0), gamma.dim(0), gamma.raw()};
}

}  // namespace

Tensor qk_norm_reference(Context& context, const Tensor& x, const Tensor& query_gamma,
                         const Tensor& key_gamma, int64_t query_width, int64_t key_width,
                         double epsilon) {
  const int64_t rows = x.dim(0), normed = query_width + key_width;
  const auto part = [&](int64_t begin, int64_t width, const Tensor& gamma) {
    const Tensor groups = reshape(context, slice(context, x, 1, begin, begin + width),
                                  {rows, width / gamma.dim(0), gamma.dim(0)});
    return reshape(context, rms_norm_reference(context, groups, gamma, epsilon), {rows, width});
  };
  const std::array<Tensor, 3> parts = {part(0, query_width, query_gamma),
                                       part(query_width, key_width, key_gamma),
                                       slice(context, x, 1, normed, x.dim(1))};
  return ops::concat(context, parts, 1);
}

Tensor qk_norm(Context& context, const Tensor& x, const Tensor& query_gamma,
               const Tensor& key_gamma, int64_t query_width, int64_t key_width, double epsilon) {
  const OpRange range(context, kQkNormOp, x, query_gamma, key_gamma);
  check_compute_input(context, kQkNormOp, "x", x);
  check_gamma(context, "query_gamma", query_gamma, x, "query_width", query_width);
  check_gamma(context, "key_gamma", key_gamma, x, "key_width", key_width);
  require(x.rank() == 2 && x.dim(1) >= checked_add(query_width, key_width, kQkNormOp),
          ErrorCode::shape_mismatch, kQkNormOp, "x must be [T, C] with at least ", query_width,
          " columns of queries and ", key_width, " of keys, its shape is ", x.shape());
  check_epsilon(kQkNormOp, epsilon);
  if (!context.fused_kernels())
    return qk_norm_reference(context, x, query_gamma, key_gamma, query_width, key_width, epsilon);

  const Tensor in = contiguous(context, x), of_queries = contiguous(context, query_gamma),
               of_keys = contiguous(context, key_gamma);
  const bool recorded = context.needs_grad({in, of_queries, of_keys});
  Tensor y = context.empty(x.shape(), x.dtype());
  QkNormForwardParams p{};
  p.dtype = x.dtype();
  p.epsilon = epsilon;
  p.rows = x.dim(0);
  p.columns = x.dim(1);
  p.groups[0] = groups_of(of_queries, query_width);
  p.groups[1] = groups_of(of_keys, key_width);
  p.x = in.raw();
  p.y = y.raw();
  Tensor rstd;
  if (recorded)
    rstd = context.empty({p.rows, p.groups[0].count + p.groups[1].count}, stat_dtype(x.dtype()));
  p.rstd = raw_or_null(rstd);
  launch(context, OpKernel::qk_norm_forward, kQkNormOp, p);
  if (!recorded) return y;

  const bool reads_gammas = requires_grad(in);
  context.record(
      kQkNormOp, {in, of_queries, of_keys}, {&y},
      {{"x", in}, {"query_gamma", of_queries, reads_gammas}, {"key_gamma", of_keys, reads_gammas}},
      [x = in.detach(), of_queries = of_queries.detach(), of_keys = of_keys.detach(), query_width,
       key_width, rstd](Backward& b) {
        const Tensor dy = b.grad_output();
        const GradTarget dx = target_if_needed(b, 0);
        const GradTarget dgamma[2] = {vector_target_if_needed(b, 1, x),
                                      vector_target_if_needed(b, 2, x)};
        QkNormBackwardParams q{};
        q.dtype = x.dtype();
        q.rows = x.dim(0);
        q.columns = x.dim(1);
        q.groups[0] = groups_of(of_queries, query_width);
        q.groups[1] = groups_of(of_keys, key_width);
        q.accumulate_dx = dx.accumulate;
        q.x = x.raw();
        q.rstd = rstd.raw();
        q.dy = dy.raw();
        q.dx = raw_or_null(dx.buffer);
        for (int i = 0; i < 2; ++i) {
          q.dgamma[i] = raw_or_null(dgamma[i].buffer);
          q.accumulate_dgamma[i] = dgamma[i].accumulate;
        }
        launch(b.context(), OpKernel::qk_norm_backward, kQkNormOp, q);
      });
  return y;
}

}  // namespace trafo::ops
