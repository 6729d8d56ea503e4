// Ops that pick, add or compare elements along one dimension, by its numbers 0 .. size - 1.
//
//   gather        out[p] = x[p with its place along dim replaced by index[p]]
//   scatter_add   x with src[p] added at that place, for every p; scatter: put there
//   cumsum        out_i = x_0 + .. + x_i
//   top_k_of      the k largest elements, largest first; argmax, argmin: the number of the first
//                 largest, smallest
//
// An index out of range is INVALID_ARGUMENT on the CPU. A GPU cannot report it: gather then gives
// NaN (-1 in int32), and scatter and scatter_add make the first element along dim NaN. Sums have a
// fixed order.
#pragma once

#include "engine/runtime/context.h"

namespace trafo {

// Positions of the index, and where they lead in x. The dimension itself has stride 0 in x.
struct GatherForwardParams {
  DType dtype;  // of x and out: a compute dtype or int32
  int32_t rank;
  int64_t shape[kMaxRank];      // of the index
  int64_t x_strides[kMaxRank];  // of x, which is contiguous; 0 along the dimension
  int64_t x_step, x_size;       // along the dimension
  const void* x;
  const int32_t* index;  // contiguous
  void* out;             // contiguous, of the index's shape
};

// out[place of p] += dout[p]; without dout, the number of p plus one in the flat index is written
// there, of the last p that leads there.
struct GatherBackwardParams {
  DType dtype;  // of dout; out has its stat_dtype
  int32_t rank;
  int64_t shape[kMaxRank];  // of the index, without the dimension
  int64_t out_strides[kMaxRank];
  int64_t index_strides[kMaxRank];
  int64_t out_step, out_size, index_step, index_size;  // along the dimension
  const void* dout;                                    // contiguous, of the index's shape
  const int32_t* index;                                // contiguous
  void* out;  // contiguous, zeros before; int32 without dout
};

// x [outer, size, inner] contiguous -> y of the same shape. reverse: y_i = x_i + .. + x_(size - 1).
struct CumulativeSumForwardParams {
  DType dtype;  // a compute dtype or int32, whose sums wrap around
  bool reverse;
  int64_t outer, size, inner;
  const void* x;
  void* y;
};

struct CumulativeSumBackwardParams {
  DType dtype;
  int64_t outer, size, inner;
  const void* dy;
  void* dx;  // overwritten
};

// The numbers of the k largest (smallest) elements of each column of x [outer, size, inner], best
// first; equal ones by lower number. NaN comes before every number.
struct LargestParams {
  DType dtype;  // a compute dtype or int32
  bool smallest;
  int64_t outer, size, inner, k;
  const void* x;
  int32_t* ids;  // [outer, k, inner]
};

namespace ops {

// x floating-point or int32; index int32 of x's rank, in no other dimension larger than x. -> the
// index's shape.
Tensor gather(Context& context, const Tensor& x, int dim, const Tensor& index);
// src has the shape of the index and the dtype of x, a floating-point one.
Tensor scatter_add(Context& context, const Tensor& x, int dim, const Tensor& index,
                   const Tensor& src);
// x floating-point or int32. If several elements lead to one place, the last in row-major order
// stays, and the gradient goes to it alone.
Tensor scatter(Context& context, const Tensor& x, int dim, const Tensor& index, const Tensor& src);
// x floating-point or int32.
Tensor cumsum(Context& context, const Tensor& x, int dim);

struct Largest {
  Tensor values;  // of x's shape, with k in place of the size along dim
  Tensor ids;     // int32
};
// 1 <= k <= size. x floating-point or int32. Each value's gradient goes to its element.
Largest top_k_of(Context& context, const Tensor& x, int64_t k, int dim);
// -> int32. The dimension must not be empty.
Tensor argmax(Context& context, const Tensor& x, int dim, bool keep_dim = false);
Tensor argmin(Context& context, const Tensor& x, int dim, bool keep_dim = false);

}  // namespace ops
}  // namespace trafo
