#include "engine/ops/fp8/fp8_linear.h"

#include "engine/ops/checks.h"
#include "engine/ops/matmul/weight_gradient.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/view/view.h"

namespace trafo::ops {
namespace {

constexpr const char* kFp8LinearOp = "fp8_linear";

void check_fp8_linear(const Context& context, const Tensor& x, const Tensor& weight,
                      const Fp8Matrix& narrow, const Tensor& bias) {
  require(context.fused_kernels(), ErrorCode::unsupported, kFp8LinearOp,
          "the reference path has no FP8");
  check_compute_input(context, kFp8LinearOp, "x", x);
  check_compute_input(context, kFp8LinearOp, "weight", weight);
  check_same_dtype(kFp8LinearOp, "x", x, "weight", weight);
  require_fp8_dtype(context, kFp8LinearOp, x);
  require(weight.rank() == 2 && x.rank() >= 1 && x.dim(-1) == weight.dim(1),
          ErrorCode::shape_mismatch, kFp8LinearOp, "x must be [.., in] and weight [out, in], got ",
          x.shape(), " and ", weight.shape());
  require_fp8_multiple(kFp8LinearOp, "the number of outputs", weight.dim(0));
  require_fp8_multiple(kFp8LinearOp, "the number of inputs", weight.dim(1));
  require_fp8_weight(kFp8LinearOp, weight, narrow);
  if (!bias.defined()) return;
  check_compute_input(context, kFp8LinearOp, "bias", bias);
  check_same_dtype(kFp8LinearOp, "x", x, "bias", bias);
  require(bias.shape() == Shape{weight.dim(0)}, ErrorCode::shape_mismatch, kFp8LinearOp,
          "bias must be [", weight.dim(0), "], its shape is ", bias.shape());
}

Shape with_last(const Shape& shape, int64_t last) {
  Shape result = shape;
  result[result.rank() - 1] = last;
  return result;
}

// The form of x that backward needs: its transposed copy, or how to get x again.
struct Fp8Input {
  Fp8Matrix narrow;  // without copies where `recomputed` is set
  SavedTensor recomputed;
  int64_t rows, columns;

  Fp8Matrix transposed(Context& context) const {
    if (narrow.transposed.defined()) return narrow;
    const Tensor x = contiguous(context, recomputed.get(context)).reshaped({rows, columns});
    return to_fp8(context, kFp8LinearOp, x, Fp8Format::e4m3, Fp8Copies::transposed);
  }
};

}  // namespace

Tensor fp8_linear(Context& context, const Tensor& x, const Tensor& weight, const Fp8Matrix& narrow,
                  const Tensor& bias) {
  const OpRange range(context, kFp8LinearOp, x, weight, bias);
  check_fp8_linear(context, x, weight, narrow, bias);
  const int64_t out = weight.dim(0), in = weight.dim(1), rows = x.numel() / in;
  const Tensor input = contiguous(context, x);
  const Tensor offset = bias.defined() ? contiguous(context, bias) : bias;
  const bool recording = context.needs_grad({input, weight, offset});
  const bool wants_dweight = recording && requires_grad(weight);
  Fp8Input kept{{}, {}, rows, in};
  if (wants_dweight) kept.recomputed = SavedTensor(input);
  const bool keeps_x = wants_dweight && kept.recomputed.is_kept();
  Tensor y = context.empty(with_last(input.shape(), out), x.dtype());
  {
    Fp8Matrix narrow_x = to_fp8(context, kFp8LinearOp, input.reshaped({rows, in}), Fp8Format::e4m3,
                                keeps_x ? Fp8Copies::both : Fp8Copies::stored);
    fp8_product(context, kFp8LinearOp, narrow_x.as_stored(), narrow.as_stored(), rows, y.dtype(),
                y.raw(), offset);
    if (keeps_x) {
      narrow_x.values = {};
      kept.narrow = std::move(narrow_x);
      kept.recomputed = {};
    }
  }
  if (!recording) return y;

  context.record(kFp8LinearOp, {input, weight, offset}, {&y}, {},
                 [rows, in, out, kept = std::move(kept), narrow](Backward& b) {
                   Context& ctx = b.context();
                   const Tensor grad = b.grad_output();
                   const bool wants_dx = b.needs(0);
                   Fp8Matrix dy, x_again;
                   if (wants_dx || b.needs(1))
                     dy = to_fp8(ctx, kFp8LinearOp, grad.reshaped({rows, out}), Fp8Format::e5m2,
                                 !b.needs(1) ? Fp8Copies::stored
                                 : wants_dx  ? Fp8Copies::both
                                             : Fp8Copies::transposed);
                   if (b.needs(1)) x_again = kept.transposed(ctx);
                   weight_and_bias_gradient(
                       b, 1, 2, grad, out, rows,
                       {dy.transposed, dy.scale, x_again.transposed, x_again.scale},
                       [&](const GradTarget& dw) {
                         fp8_product(ctx, kFp8LinearOp, dy.as_transposed(), x_again.as_transposed(),
                                     out, dw.buffer.dtype(), dw.buffer.raw(), {}, dw.accumulate);
                       });
                   if (!wants_dx) return;
                   const Tensor dx = ctx.empty(with_last(grad.shape(), in), grad.dtype());
                   fp8_product(ctx, kFp8LinearOp, dy.as_stored(), narrow.as_transposed(), rows,
                               dx.dtype(), dx.raw());
                   b.add(0, dx);
                 });
  return y;
}

}  // namespace trafo::ops
