// Conversion between float32, float64, bfloat16 (rounded to nearest even) and int32 (rounded
// towards zero; what lies outside becomes the nearest int32, NaN becomes 0). Backward casts the
// gradient back; an int32 has none.
#pragma once

#include "engine/runtime/context.h"

namespace trafo {

struct CastForwardParams {
  DType from, to;
  int64_t count;
  const void* x;
  void* y;
};

struct CastBackwardParams {
  DType from, to;  // of the gradient: from = dtype of dy, to = dtype of dx
  int64_t count;
  const void* dy;
  void* dx;
};

namespace ops {

Tensor cast(Context& context, const Tensor& x, DType dtype);

}  // namespace ops

// target = source in the target's dtype, both contiguous; what autograd converts gradients with.
void convert_into(Context& context, const Tensor& target, const Tensor& source);

}  // namespace trafo
