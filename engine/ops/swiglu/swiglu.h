// y = silu(a) b for x = [a, b] in one packed product: the gate of SwiGLU (Shazeer, arXiv
// 2002.05202).
//
// x [.., 2F] with the gate's columns first -> y [.., F]. Saved: x. da = dy b silu'(a), db = dy
// silu(a), in one pass.
#pragma once

#include "engine/runtime/context.h"

namespace trafo {

struct SwigluForwardParams {
  DType dtype;
  int64_t rows, width;  // width: F
  const void* x;
  void* y;
  uint32_t* largest;  // place for the largest magnitude of y (Fp8Magnitudes), or null
};

struct SwigluBackwardParams {
  DType dtype;
  int64_t rows, width;
  bool accumulate;
  const void* x;
  const void* dy;
  void* dx;
  uint32_t* largest;  // of dx
};

namespace ops {

Tensor swiglu(Context& context, const Tensor& x);
Tensor swiglu_reference(Context& context, const Tensor& x);

}  // namespace ops
}  // namespace trafo
