// A linear layer with a frozen weight and a low-rank adapter (LoRA, Hu et al., arXiv 2106.09685):
//
//   y = x W^T + bias + (scale x A^T) B^T        in ranges of columns, see ops/low_rank_add
//
// x [T, in], W [out, in], bias [out] or undefined, A [R r, in] and B [rows, r] of an update with R
// ranges -> [T, out]. It is linear, scale, linear and low_rank_add. Where GEMMs take a
// term of low rank (GemmParams::term_k), the product of W has the adapter's term in it, and so has
// the product that makes the gradient of x: y and dx are written once and rounded once. So is y
// where the codes of W are read for few rows (coded_rows). Backward: dB_i = dy_i^T D_i with D =
// scale x A^T, dD = scale dy B, dA = dD^T x, dx = dy W + dD A.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "engine/ops/low_rank_add/low_rank_add.h"
#include "engine/ops/quantized_linear/quantized_linear.h"
#include "engine/runtime/context.h"

namespace trafo {

// The term that an adapter adds to x W^T: scale (x down^T) up^T in ranges of columns.
struct LowRankUpdate {
  Tensor down;  // [ranges * r, columns of W]: LoRA's A of each range
  Tensor up;    // [columns of all ranges, r]: LoRA's B of each range
  double scale = 1;
  std::shared_ptr<const std::vector<ColumnRange>> ranges;
};

// A matrix that is not trained: its values, or codes of them.
struct FrozenMatrix {
  Tensor values;
  std::shared_ptr<const CodedMatrix> coded;
};

namespace ops {

// SHAPE_MISMATCH and DTYPE_MISMATCH as of linear and low_rank_add.
Tensor low_rank_linear(Context& context, const Tensor& x, const FrozenMatrix& weight,
                       const Tensor& bias, const LowRankUpdate& update);

// Adds the term of the update to what `product` makes, x W^T + bias, a tensor that nobody else
// reads. The thin product comes before it, so that backward adds the thin gradient of x to the wide
// one, which is cheaper than the other order.
Tensor add_low_rank(Context& context, const Tensor& x, const LowRankUpdate& update,
                    const std::function<Tensor()>& product);

}  // namespace ops
}  // namespace trafo
