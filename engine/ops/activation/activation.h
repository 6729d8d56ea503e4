// ReLU, GELU and SiLU. GELU is the tanh form of Hendrycks & Gimpel (arXiv 1606.08415):
// 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). Backward uses the input.
#pragma once

#include "engine/core/generated/option_enums.h"
#include "engine/runtime/context.h"

namespace trafo {

struct ActivationForwardParams {
  DType dtype;
  Activation activation;
  int64_t count;
  const void* x;
  void* y;
};

struct ActivationBackwardParams {
  DType dtype;
  Activation activation;
  bool accumulate;
  int64_t count;
  const void* x;
  const void* dy;
  void* dx;
};

namespace ops {

Tensor activation(Context& context, const Tensor& x, Activation kind);
Tensor activation_reference(Context& context, const Tensor& x, Activation kind);

}  // namespace ops
}  // namespace trafo
