#include "engine/ops/feed_forward/feed_forward.h"

#include <algorithm>

#include "engine/ops/activation/activation_check.h"
#include "engine/ops/bias_act_dropout/bias_act_dropout.h"
#include "engine/ops/checks.h"
#include "engine/ops/dropout/dropout.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/matmul/weight_gradient.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/row_op.h"
#include "engine/ops/row_sums.h"
#include "engine/ops/view/view.h"

namespace trafo::ops {
namespace {

constexpr const char* kFeedForwardOp = "feed_forward";

struct Sizes {
  int64_t rows, in, ffn, out;
};

Sizes check(const Context& context, const Tensor& x, const Tensor& up, const Tensor& up_bias,
            const Tensor& down) {
  check_compute_input(context, kFeedForwardOp, "x", x);
  check_compute_input(context, kFeedForwardOp, "up", up);
  check_compute_input(context, kFeedForwardOp, "down", down);
  check_same_dtype(kFeedForwardOp, "x", x, "up", up);
  check_same_dtype(kFeedForwardOp, "x", x, "down", down);
  require(x.rank() >= 1 && up.rank() == 2 && down.rank() == 2 && x.dim(-1) == up.dim(1) &&
              up.dim(0) == down.dim(1),
          ErrorCode::shape_mismatch, kFeedForwardOp,
          "x must be [.., in], up [ffn, in] and down [out, ffn], got ", x.shape(), ", ", up.shape(),
          " and ", down.shape());
  if (up_bias.defined()) {
    check_compute_input(context, kFeedForwardOp, "up_bias", up_bias);
    check_same_dtype(kFeedForwardOp, "x", x, "up_bias", up_bias);
    require(up_bias.shape() == Shape{up.dim(0)}, ErrorCode::shape_mismatch, kFeedForwardOp,
            "up_bias must be [", up.dim(0), "], its shape is ", up_bias.shape());
  }
  int64_t rows = 1;
  for (int i = 0; i + 1 < x.rank(); ++i) rows *= x.dim(i);
  return {rows, up.dim(1), up.dim(0), down.dim(0)};
}

Shape with_width(const Tensor& x, int64_t width) {
  Shape shape = x.shape();
  shape[shape.rank() - 1] = width;
  return shape;
}

// y [m, n] = x [m, k] W^T, or x W for `flipped`, both without gaps.
GemmParams product(const Tensor& x, const Tensor& weight, const Tensor& y, int64_t m, int64_t n,
                   int64_t k, bool flipped = false) {
  GemmParams p;
  p.dtype = x.dtype();
  p.trans_b = !flipped;
  p.m = m;
  p.n = n;
  p.k = k;
  p.a = x.raw();
  p.lda = std::max<int64_t>(k, 1);
  p.b = weight.raw();
  p.ldb = std::max<int64_t>(flipped ? n : k, 1);
  p.c = y.raw();
  p.ldc = n;
  return p;
}

// Data that backward needs. x and `active` may have to be computed again.
struct Saved {
  SavedTensor x;
  Tensor up, bias, down;
  Tensor h;       // x U^T; for ReLU undefined
  Tensor active;  // dropout(activation(h + bias))
  Activation kind;
  Dropout dropout;
  Sizes sizes;
};

void backward_in_products(Backward& b, Saved& saved) {
  Context& context = b.context();
  const Sizes& sizes = saved.sizes;
  const bool relu = saved.kind == Activation::relu;
  const Tensor dy = b.grad_output();
  if (b.needs(3)) {
    const Tensor active = saved.active.defined() ? saved.active
                                                 : bias_act_dropout(context, saved.h, saved.bias,
                                                                    saved.kind, saved.dropout);
    weight_and_bias_gradient(
        b, 3, std::nullopt, dy, sizes.out,
        {active, false, std::max<int64_t>(sizes.ffn, 1), sizes.rows, sizes.ffn});
  }
  // ReLU's result shows where its argument was positive.
  const Tensor aux = relu ? saved.active : saved.h;
  saved.active = {};
  if (!b.needs(0) && !b.needs(1) && !b.needs(2)) return;
  Tensor dh = context.empty(aux.shape(), aux.dtype());
  GemmParams p = product(dy, saved.down, dh, sizes.rows, sizes.ffn, sizes.out, true);
  p.epilogue = relu ? Epilogue::drelu : Epilogue::dgelu;
  p.aux = aux.raw();
  if (!relu) p.bias = raw_or_null(saved.bias);
  p.dropout = saved.dropout;
  const GradTarget dbias = vector_target_if_needed(b, 2, aux);
  p.column_sums = raw_or_null(dbias.buffer);
  p.accumulate_column_sums = dbias.accumulate;
  issue_with_row_sums(b, sizes.ffn, {{2, dbias}}, [&] { context.backend().gemm(p); });
  if (b.needs(1))
    weight_and_bias_gradient(
        b, 1, std::nullopt, dh, sizes.ffn,
        {saved.x.get(context), false, std::max<int64_t>(sizes.in, 1), sizes.rows, sizes.in});
  if (b.needs(0)) {
    const GradTarget dx = b.target(0, b.grad_dtype(0));
    GemmParams q = product(dh, saved.up, dx.buffer, sizes.rows, sizes.in, sizes.ffn, true);
    q.accumulate = dx.accumulate;
    q.c_is_f32 = dx.buffer.dtype() == DType::f32;
    context.backend().gemm(q);
  }
}

}  // namespace

Tensor feed_forward(Context& context, const Tensor& x, const Tensor& up, const Tensor& up_bias,
                    const Tensor& down, Activation kind, const Dropout& dropout) {
  const OpRange range(context, kFeedForwardOp, x, up, up_bias, down);
  const Sizes sizes = check(context, x, up, up_bias, down);
  check_activation(kFeedForwardOp, kind);
  check_dropout(dropout, kFeedForwardOp);
  const bool in_products = context.gemm_epilogues() && context.fused_kernels() &&
                           context.backend().gemm_epilogues(x.dtype()) &&
                           (kind == Activation::relu || kind == Activation::gelu);
  if (!in_products) {
    const Tensor wide = linear(context, x, up);
    return linear(context, bias_act_dropout(context, wide, up_bias, kind, dropout), down);
  }

  const Tensor input = contiguous(context, x), u = contiguous(context, up),
               bias = up_bias.defined() ? contiguous(context, up_bias) : Tensor{},
               d = contiguous(context, down);
  const bool recorded = context.needs_grad({input, u, bias, d});
  const bool keeps_h = recorded && kind != Activation::relu;
  const Tensor h = keeps_h ? context.empty(with_width(x, sizes.ffn), x.dtype()) : Tensor{};
  Tensor active = context.empty(with_width(x, sizes.ffn), x.dtype());
  GemmParams p = product(input, u, active, sizes.rows, sizes.ffn, sizes.in);
  p.bias = raw_or_null(bias);
  p.epilogue = kind == Activation::relu ? Epilogue::relu : Epilogue::gelu;
  p.aux = raw_or_null(h);
  p.dropout = dropout;
  context.backend().gemm(p);
  Tensor y = context.empty(with_width(x, sizes.out), x.dtype());
  context.backend().gemm(product(active, d, y, sizes.rows, sizes.out, sizes.ffn));
  if (!recorded) return y;
  const bool inner = requires_grad(input) || requires_grad(u) || requires_grad(bias);
  const bool again = keeps_h && context.recompute() == Recompute::selective;
  Saved saved{requires_grad(u) ? SavedTensor(input) : SavedTensor(),
              u.detach(),
              bias.defined() ? bias.detach() : bias,
              d.detach(),
              h,
              again ? Tensor{} : active,
              kind,
              dropout,
              sizes};
  const bool keeps_x = saved.x.is_kept();
  context.record(
      kFeedForwardOp, {input, u, bias, d}, {&y},
      {{"x", input, keeps_x},
       {"up", u, requires_grad(input)},
       {"up_bias", bias, keeps_h},
       {"down", d, inner}},
      [saved = std::move(saved)](Backward& b) mutable { backward_in_products(b, saved); });
  return y;
}

}  // namespace trafo::ops
