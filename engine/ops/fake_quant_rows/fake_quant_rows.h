// Values rounded to the codes of a quantized model and back, for quantization-aware training.
//
//   y = code * s,  with the scale and the code of formats::kInt8 for a row of x (8 bits), of
//   formats::kInt4 for 32 columns (4 bits)
//
// x [.., C] of float32, float64 or bfloat16. In float32 y has the bits of the int8 kernels
// (quant/int8_kernel.h) and of Int4Matrix. A row (of 4 bits: a group) with a value that is
// not finite gives NaN, one whose largest magnitude is below 2^-100 gives zeros.
//
// The gradient passes unchanged (straight-through estimator, Bengio et al., arXiv 1308.3432): no
// value is clipped, so none of it is masked. Nothing is saved for backward.
#pragma once

#include <span>

#include "engine/runtime/context.h"

namespace trafo {

// A matrix [rows, width] of a workspace, `offset` elements after its begin.
struct MatrixPlace {
  int64_t offset, rows, width;
};

struct FakeQuantRowsParams {
  DType from, to;  // the same, or float32 to bfloat16
  int32_t bits;    // 8 or 4
  const void* x;
  void* y;
  const MatrixPlace* matrices;  // in x and in y; host memory
  int64_t count;                // of matrices
};

namespace ops {

// 8 bits.
Tensor fake_quant_rows(Context& context, const Tensor& x);

}  // namespace ops

// target = x rounded to codes of `bits`; no autodiff. Both are contiguous and of one shape, which
// has rows; target may be bfloat16 beside a float32 x.
void fake_quant_into(Context& context, const Tensor& target, const Tensor& x, int64_t bits);

// The same for these matrices of the workspaces `target` and `x` [N], in one launch.
void fake_quant_into(Context& context, const Tensor& target, const Tensor& x,
                     std::span<const MatrixPlace> matrices, int64_t bits);

}  // namespace trafo
