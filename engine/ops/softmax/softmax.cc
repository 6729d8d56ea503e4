#include "engine/ops/softmax/softmax.h"

#include <cmath>

#include "engine/ops/binary/binary.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/ops/row_op.h"
#include "engine/ops/unary/unary.h"
#include "engine/ops/view/view.h"

namespace trafo::ops {
namespace {

constexpr const char* kOp = "softmax";

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
  check_compute_input(context, kOp, "x", x);
  require(x.rank() >= 1 && x.rank() <= 4, ErrorCode::shape_mismatch, kOp,
          "x must be [batch, heads, queries, keys] or have fewer dimensions, its shape is ",
          x.shape().str());
  require(std::isfinite(options.scale), ErrorCode::invalid_argument, kOp,
          "scale must be finite, got ", options.scale);
  const Tensor& mask = options.padding_mask;
  if (!mask.defined()) return;
  const SoftmaxShape shape = shape_of(x);
  require(mask.device() == context.device(), ErrorCode::invalid_argument, kOp,
          "padding_mask is on ", device_name(mask.device()), ", the context computes on ",
          device_name(context.device()));
  require(mask.dtype() == DType::i32, ErrorCode::dtype_mismatch, kOp,
          "padding_mask must be int32, it is ", dtype_name(mask.dtype()));
  require(mask.rank() == 2 && mask.dim(0) == shape.batch && mask.dim(1) == shape.keys,
          ErrorCode::shape_mismatch, kOp, "padding_mask must be [batch, keys] = [", shape.batch,
          ", ", shape.keys, "], it is ", mask.shape().str());
}

// Masks of the composed form, which broadcast against x: 1 for visible keys and 0 for hidden ones,
// the same minus one times a large number, and 1 for rows without a visible key.
struct CompositeMasks {
  Tensor visible, penalty, empty_row;
};

CompositeMasks composite_masks(Context& context, const Tensor& x, const SoftmaxOptions& options) {
  const SoftmaxShape shape = shape_of(x);
  const bool padded = options.padding_mask.defined();
  std::vector<int32_t> hidden;
  if (padded) hidden = context.values<int32_t>(contiguous(context, options.padding_mask));
  const int64_t batch = padded ? shape.batch : 1;
  const int64_t queries = options.causal ? shape.queries : 1;
  std::vector<double> visible, penalty, empty_row;
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t q = 0; q < queries; ++q) {
      bool any = false;
      for (int64_t k = 0; k < shape.keys; ++k) {
        const bool sees = !(padded && hidden[static_cast<size_t>(b * shape.keys + k)] != 0) &&
                          !(options.causal && k > q + shape.keys - shape.queries);
        any = any || sees;
        visible.push_back(sees ? 1 : 0);
        penalty.push_back(sees ? 0 : -1e30);
      }
      empty_row.push_back(any ? 0 : 1);
    }
  }
  // As many trailing dimensions as x has; those that are dropped are 1.
  const auto make = [&](const std::vector<double>& values, int64_t keys) {
    const int64_t full[] = {batch, 1, queries, keys};
    const Shape dims(std::span<const int64_t>(full + 4 - x.rank(), full + 4));
    return context.from_doubles(values, dims, x.dtype());
  };
  return {make(visible, shape.keys), make(penalty, shape.keys), make(empty_row, 1)};
}

}  // namespace

Tensor softmax_composed(Context& context, const Tensor& x, const SoftmaxOptions& options) {
  Tensor scores = options.scale == 1 ? x : scale(context, x, options.scale);
  if (x.numel() == 0) return contiguous(context, scores);  // there is no maximum of nothing
  CompositeMasks masks;
  const bool masked = options.causal || options.padding_mask.defined();
  if (masked) {
    masks = composite_masks(context, x, options);
    scores = add(context, multiply(context, scores, masks.visible), masks.penalty);
  }
  // Softmax does not change with the shift, so the maximum is a constant to autodiff.
  const Tensor highest = max(context, scores.detach(), -1, true);
  Tensor weights = exp(context, subtract(context, scores, highest));
  if (masked) weights = multiply(context, weights, masks.visible);
  Tensor total = sum(context, weights, -1, true);
  if (masked) total = add(context, total, masks.empty_row);  // 0 / 1 instead of 0 / 0
  return divide(context, weights, total);
}

Tensor softmax(Context& context, const Tensor& x, const SoftmaxOptions& options) {
  check(context, x, options);
  if (!context.fused_kernels()) return softmax_composed(context, x, options);

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
  launch(context, OpKernel::softmax_forward, kOp, p);
  if (context.needs_grad({in})) {
    context.record(kOp, {in}, {&y}, [y = y.detach(), scale = options.scale](Backward& b) {
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
      launch(b.context(), OpKernel::softmax_backward, kOp, q);
    });
  }
  return y;
}

}  // namespace trafo::ops
