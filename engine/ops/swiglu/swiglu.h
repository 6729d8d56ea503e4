// y = act(a) b for x = [a, b] in one packed product: the gates of SwiGLU, where act is SiLU, and of
// GEGLU, where it is GELU or its tanh form (Shazeer, arXiv 2002.05202).
//
// x [.., 2F] with the gate's columns first -> y [.., F]. Saved: x. da = dy b act'(a), db = dy
// act(a), in one pass.
#pragma once

#include "engine/core/generated/option_enums.h"
#include "engine/runtime/context.h"

namespace trafo {

struct SwigluForwardParams {
  DType dtype;
  Activation activation;  // silu, gelu or gelu_erf
  int64_t rows, width;    // width: F
  const void* x;
  void* y;
  uint32_t* largest;  // place for the largest magnitude of y (Fp8Magnitudes), or null
};

struct SwigluBackwardParams {
  DType dtype;
  Activation activation;
  int64_t rows, width;
  bool accumulate;
  const void* x;
  const void* dy;
  void* dx;
  uint32_t* largest;  // of dx
};

namespace ops {

// activation: silu, gelu or gelu_erf, INVALID_ARGUMENT with another.
Tensor gated_unit(Context& context, const Tensor& x, Activation activation);
inline Tensor swiglu(Context& context, const Tensor& x) {
  return gated_unit(context, x, Activation::silu);
}
Tensor gated_unit_reference(Context& context, const Tensor& x, Activation activation);
inline Tensor swiglu_reference(Context& context, const Tensor& x) {
  return gated_unit_reference(context, x, Activation::silu);
}

}  // namespace ops
}  // namespace trafo
