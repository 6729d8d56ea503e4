// Ops that only look at the same elements in another way, and the copies that undo strides.
//
// reshape, transpose, permute, expand and slice return views of the same storage where strides
// allow; concat and contiguous copy. Backward: the gradient of a view is the view of the gradient;
// slice adds into the part it came from, expand sums over the repeated dimensions.
#pragma once

#include <span>

#include "engine/runtime/context.h"

namespace trafo {

// dst[i] (+)= src[i] over a strided index space of up to 8 dimensions; both of `dtype` (any).
struct CopyStridedParams {
  DType dtype;
  bool accumulate;  // floating-point dtypes only
  int32_t rank;
  int64_t shape[kMaxRank];
  int64_t src_strides[kMaxRank];
  int64_t dst_strides[kMaxRank];
  const void* src;
  void* dst;
};

namespace ops {

// `shape` may hold one -1, which is inferred. A strided view is copied first.
Tensor reshape(Context& context, const Tensor& x, const Shape& shape);
// Swaps two dimensions (negative counts from the end). A view.
Tensor transpose(Context& context, const Tensor& x, int dim0, int dim1);
// Dimension i of the result is dimension dims[i] of x: dims has each number once (negative counts
// from the end). A view.
Tensor permute(Context& context, const Tensor& x, std::span<const int> dims);
// Repeats dimensions of size 1, and new ones in front, to `shape`; -1 keeps the size of x. A view
// with stride 0.
Tensor expand(Context& context, const Tensor& x, const Shape& shape);
// x[..., start:stop, ...] along `dim`. A view. 0 <= start <= stop <= size.
Tensor slice(Context& context, const Tensor& x, int dim, int64_t start, int64_t stop);
// Joins along `dim`; all other dimensions and the dtype must agree; at least one tensor.
Tensor concat(Context& context, std::span<const Tensor> tensors, int dim);
// x itself if it is contiguous, else a copy.
Tensor contiguous(Context& context, const Tensor& x);

}  // namespace ops

// target += source, both contiguous; what autograd uses to sum gradients.
void accumulate_into(Context& context, const Tensor& target, const Tensor& source);

}  // namespace trafo
