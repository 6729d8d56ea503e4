// out[i] = x[index[i]]: whole rows of a matrix in another order, some more than once, some not at
// all. Decoding reorders its hypotheses with it. Outside autodiff: see embedding for a
// gather that has a gradient.
#pragma once

#include "engine/runtime/context.h"

namespace trafo {

// `width` leading elements of each row are copied, in each of `planes` matrices; strides are in
// elements, strides of rows are >= width. Source and destination do not overlap.
struct GatherRowsParams {
  DType dtype;  // any
  int64_t x_rows, rows, width;
  int64_t x_stride, out_stride;  // from row to row
  const void* x;
  const int32_t* index;  // [rows], 0 .. x_rows - 1
  void* out;
  int64_t planes = 1, x_plane_stride = 0, out_plane_stride = 0;
  const int32_t* out_index = nullptr;  // [rows], 0 .. out_rows - 1, no two the same; null: 0, 1, ..
  int64_t out_rows = 0;                // with out_index
};

namespace ops {

// x [N, ...] of any dtype, index [R] int32 -> [R, ...]. An index out of range is INVALID_ARGUMENT;
// UNSUPPORTED when a gradient of x is wanted.
Tensor gather_rows(Context& context, const Tensor& x, const Tensor& index);
// Writes x[p, index[i]] to out[p, out_index[i]], for each p. x [P, N, C] and out [P, M, C] have one
// dtype; their rows and planes may lie apart. They may be one tensor, if no row is both read and
// written. No two of out_index are the same. An index out of range is INVALID_ARGUMENT on the CPU;
// on CUDA, a row out of `out` is not written.
void copy_rows(Context& context, const Tensor& x, const Tensor& index, const Tensor& out,
               const Tensor& out_index);

}  // namespace ops
}  // namespace trafo
