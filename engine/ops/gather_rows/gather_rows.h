// out[i] = x[index[i]]: whole rows of a matrix in another order, some more than once, some not at
// all. Decoding reorders its hypotheses with it. Outside autodiff: see embedding for a
// gather that has a gradient.
#pragma once

#include "engine/runtime/context.h"

namespace trafo {

// `width` leading elements of each row are copied; strides are in elements, >= width. out and x do
// not overlap.
struct GatherRowsParams {
  DType dtype;  // any
  int64_t x_rows, rows, width;
  int64_t x_stride, out_stride;  // elements from row to row
  const void* x;
  const int32_t* index;  // [rows], 0 .. x_rows - 1
  void* out;
};

namespace ops {

// x [N, ...] of any dtype, index [R] int32 -> [R, ...]. An index out of range is INVALID_ARGUMENT;
// UNSUPPORTED when a gradient of x is wanted.
Tensor gather_rows(Context& context, const Tensor& x, const Tensor& index);
// Writes x[index[i]] to row i of `out`. x [N, C] and out [R, C] have one dtype; their rows may lie
// apart, the elements of a row side by side. They do not overlap.
void gather_rows_into(Context& context, const Tensor& x, const Tensor& index, const Tensor& out);

}  // namespace ops
}  // namespace trafo
