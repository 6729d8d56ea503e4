#include "engine/ops/softmax/softmax.h"

#include <cmath>

#include "engine/core/argument_error.h"
#include "engine/ops/binary/binary.h"
#include "engine/ops/masks/masks.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/ops/row_op.h"
#include "engine/ops/unary/unary.h"
#include "engine/ops/view/view.h"

namespace trafo::ops {
namespace {

constexpr const char* kSoftmaxOp = "softmax";

struct SoftmaxShape {
  int64_t batch = 1, heads = 1, queries = 1, keys = 1;
};

SoftmaxShape shape_of(const Tensor& x) {
  SoftmaxShape shape;
  int64_t* const dims[] = {&shape.keys, &shape.queries, &shape.heads, &shape.batch};
  for (int i = 0; i < x.rank(); ++i) *dims[i] = x.dim(-1 - i);
  return shape;
}

void check(const Context& context, const Tensor& x, const SoftmaxOptions& options) {
  check_compute_input(context, kSoftmaxOp, "x", x);
  require(x.rank() >= 1 && x.rank() <= 4, ErrorCode::shape_mismatch, kSoftmaxOp,
          "x must be [batch, heads, queries, keys] or have fewer dimensions, its shape is ",
          x.shape());
  require_argument(std::isfinite(options.scale), kSoftmaxOp, "scale", " must be finite, got ",
                   options.scale);
  const Tensor& mask = options.padding_mask;
  if (!mask.defined()) return;
  const SoftmaxShape shape = shape_of(x);
  require_argument(mask.device() == context.device(), kSoftmaxOp, "padding_mask", " is on ",
                   mask.device(), ", the context computes on ", context.device());
  require(mask.dtype() == DType::i32, ErrorCode::dtype_mismatch, kSoftmaxOp,
          "padding_mask must be int32, it is ", dtype_name(mask.dtype()));
  require(mask.rank() == 2 && mask.dim(0) == shape.batch && mask.dim(1) == shape.keys,
          ErrorCode::shape_mismatch, kSoftmaxOp, "padding_mask must be [batch, keys] = [",
          shape.batch, ", ", shape.keys, "], it is ", mask.shape());
}

// Which keys the options show, broadcastable against x.
Tensor visible_of(Context& context, const Tensor& x, const SoftmaxOptions& options) {
  const SoftmaxShape shape = shape_of(x);
  const Tensor masked =
      options.padding_mask.defined() ? contiguous(context, options.padding_mask) : Tensor{};
  VisibleKeysParams p{};
  p.dtype = x.dtype();
  p.causal = options.causal;
  p.sequences = masked.defined() ? shape.batch : 1;
  p.queries = options.causal ? shape.queries : 1;
  p.keys = shape.keys;
  p.masked = masked.defined() ? masked.data<int32_t>() : nullptr;
  // As many trailing dimensions as x has; those that are dropped are 1.
  const int64_t full[] = {p.sequences, 1, p.queries, p.keys};
  return visible_keys(context, p, Shape(std::span<const int64_t>(full + 4 - x.rank(), full + 4)));
}

}  // namespace

Tensor softmax_reference(Context& context, const Tensor& x, const SoftmaxOptions& options) {
  const Tensor scores = options.scale == 1 ? x : scale(context, x, options.scale);
  if (x.numel() == 0) return contiguous(context, scores);  // there is no maximum of nothing
  const bool masked = options.causal || options.padding_mask.defined();
  return masked_softmax(context, scores, masked ? visible_of(context, x, options) : Tensor{});
}

Tensor masked_softmax(Context& context, const Tensor& x, const Tensor& visible) {
  if (x.numel() == 0) return contiguous(context, x);
  const bool masked = visible.defined();
  Tensor scores = x;
  // A masked score is -infinity, the log of 0, whatever x is there.
  if (masked) scores = add(context, select(context, x, visible), log(context, visible));
  // Softmax does not change with the shift, so the maximum is a constant to autodiff.
  Tensor highest = max(context, scores.detach(), -1, true);
  Tensor any;  // 1 of rows with a visible key
  if (masked) {
    any = max(context, visible, -1, true);
    highest = select(context, highest, any);  // else -infinity less -infinity
  }
  const Tensor weights = exp(context, subtract(context, scores, highest));
  Tensor total = sum(context, weights, -1, true);
  // 0 / 1 instead of 0 / 0 where no key is visible.
  if (masked) total = add(context, total, scale(context, shift(context, any, -1), -1));
  return divide(context, weights, total);
}

Tensor softmax(Context& context, const Tensor& x, const SoftmaxOptions& options) {
  const OpRange range(context, kSoftmaxOp, x);
  check(context, x, options);
  if (!context.fused_kernels()) return softmax_reference(context, x, options);

  const Tensor in = contiguous(context, x);
  const Tensor mask =
      options.padding_mask.defined() ? contiguous(context, options.padding_mask) : Tensor{};
  const SoftmaxShape shape = shape_of(x);
  Tensor y = context.empty(x.shape(), x.dtype());
  SoftmaxForwardParams p{};
  p.dtype = x.dtype();
  p.scale = options.scale;
  p.causal = options.causal;
  p.batch = shape.batch;
  p.heads = shape.heads;
  p.queries = shape.queries;
  p.keys = shape.keys;
  p.x = in.raw();
  p.padding_mask = mask.defined() ? mask.data<int32_t>() : nullptr;
  p.y = y.raw();
  launch(context, OpKernel::softmax_forward, kSoftmaxOp, p);
  if (context.needs_grad({in})) {
    context.record(kSoftmaxOp, {in}, {&y}, {{kResult, y}},
                   [y = y.detach(), scale = options.scale](Backward& b) {
                     const int64_t keys = y.dim(-1);
                     const Tensor dy = b.grad_output();
                     const GradTarget dx = b.target(0);
                     SoftmaxBackwardParams q{};
                     q.dtype = y.dtype();
                     q.scale = scale;
                     q.accumulate = dx.accumulate;
                     q.rows = keys > 0 ? y.numel() / keys : 0;
                     q.keys = keys;
                     q.y = y.raw();
                     q.dy = dy.raw();
                     q.dx = dx.buffer.raw();
                     launch(b.context(), OpKernel::softmax_backward, kSoftmaxOp, q);
                   });
  }
  return y;
}

}  // namespace trafo::ops
