// Broadcasting by NumPy's rule, and its gradient: shapes are aligned at the last dimension, and a
// dimension of size 1 is repeated.
#pragma once

#include "engine/runtime/context.h"

namespace trafo {

// SHAPE_MISMATCH, with `op` as the origin, if the shapes do not broadcast.
Shape broadcast_shape(const char* op, const Shape& a, const Shape& b);

// The strides with which x is read over `shape`, one for each dimension: 0 where it is repeated.
void broadcast_strides(const Tensor& x, const Shape& shape, int64_t* strides);

// The sum of a contiguous gradient over the dimensions in which an operand of shape `to` was
// repeated. The order of additions is fixed.
Tensor sum_to_shape(Context& context, const char* op, Tensor grad, const Shape& to);

}  // namespace trafo
