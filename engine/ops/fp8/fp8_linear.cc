#include "engine/ops/fp8/fp8_linear.h"

#include <algorithm>

#include "engine/ops/checks.h"
#include "engine/ops/matmul/weight_gradient.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/view/view.h"

namespace trafo::ops {
namespace {

constexpr const char* kFp8LinearOp = "fp8_linear";

void check_fp8_linear(const Context& context, const Tensor& x, const Tensor& weight,
                      const Tensor& bias) {
  require(context.fused_kernels(), ErrorCode::unsupported, kFp8LinearOp,
          "the reference path has no FP8");
  check_compute_input(context, kFp8LinearOp, "x", x);
  check_compute_input(context, kFp8LinearOp, "weight", weight);
  check_same_dtype(kFp8LinearOp, "x", x, "weight", weight);
  require_fp8_dtype(context, kFp8LinearOp, x);
  require(weight.rank() == 2 && x.rank() >= 1 && x.dim(-1) == weight.dim(1),
          ErrorCode::shape_mismatch, kFp8LinearOp, "x must be [.., in] and weight [out, in], got ",
          x.shape().str(), " and ", weight.shape().str());
  require_fp8_multiple(kFp8LinearOp, "the number of outputs", weight.dim(0));
  require_fp8_multiple(kFp8LinearOp, "the number of inputs", weight.dim(1));
  if (!bias.defined()) return;
  check_compute_input(context, kFp8LinearOp, "bias", bias);
  check_same_dtype(kFp8LinearOp, "x", x, "bias", bias);
  require(bias.shape() == Shape{weight.dim(0)}, ErrorCode::shape_mismatch, kFp8LinearOp,
          "bias must be [", weight.dim(0), "], its shape is ", bias.shape().str());
}

Shape with_last(const Shape& shape, int64_t last) {
  Shape result = shape;
  result[result.rank() - 1] = last;
  return result;
}

}  // namespace

Tensor fp8_linear(Context& context, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const OpRange range(context, kFp8LinearOp, x, weight, bias);
  check_fp8_linear(context, x, weight, bias);
  const int64_t out = weight.dim(0), in = weight.dim(1), rows = x.numel() / in;
  const Shape flat{rows, in};
  const Tensor input = contiguous(context, x), w = contiguous(context, weight);
  const Tensor offset = bias.defined() ? contiguous(context, bias) : bias;
  const SavedTensor saved = requires_grad(w) ? SavedTensor(input) : SavedTensor();
  const bool wants_dx = context.needs_grad({input});
  Tensor y = context.empty(with_last(input.shape(), out), x.dtype());
  Fp8Matrix factor;
  {
    const Fp8Matrix narrow = to_fp8(context, kFp8LinearOp, input.reshaped(flat), Fp8Format::e4m3);
    factor = to_fp8(context, kFp8LinearOp, w, Fp8Format::e4m3, wants_dx);
    fp8_product(context, kFp8LinearOp, narrow.as_stored(), factor.as_stored(), rows, y.dtype(),
                y.raw(), offset);
  }
  if (!context.needs_grad({input, w, offset})) return y;

  factor.values = {};  // backward reads the transposed one
  context.record(kFp8LinearOp, {input, w, offset}, {&y}, {{"x", input, saved.is_kept()}},
                 [rows, in, out, flat, saved, factor = std::move(factor)](Backward& b) {
                   Context& ctx = b.context();
                   const Tensor grad = b.grad_output();
                   if (b.needs(1) || b.needs(2)) {
                     const Tensor kept =
                         b.needs(1) ? contiguous(ctx, saved.get(ctx)).reshaped(flat) : Tensor{};
                     weight_and_bias_gradient(b, 1, 2, grad, out,
                                              {kept, false, std::max<int64_t>(in, 1), rows, in});
                   }
                   if (!b.needs(0)) return;
                   const Tensor dx = ctx.empty(with_last(grad.shape(), in), grad.dtype());
                   const Fp8Matrix narrow =
                       to_fp8(ctx, kFp8LinearOp, grad.reshaped({rows, out}), Fp8Format::e5m2);
                   fp8_product(ctx, kFp8LinearOp, narrow.as_stored(), factor.as_transposed(), rows,
                               dx.dtype(), dx.raw());
                   b.add(0, dx);
                 });
  return y;
}

}  // namespace trafo::ops
