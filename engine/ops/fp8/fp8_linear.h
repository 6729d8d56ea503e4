// A linear layer of training with FP8 GEMMs.
#pragma once

#include "engine/ops/fp8/fp8.h"

namespace trafo::ops {

// y = x W^T + bias as ops::linear (ops/matmul). y is a product of x and W in E4M3, dx one of dy in
// E5M2 and W, and dW one of dy and x. dbias is as in ops::linear. `narrow` is `weight` in E4M3 with
// both copies; backward keeps it. x is kept in FP8, unless it is recomputed. x is float32 on the
// CPU and bfloat16 on CUDA; in and out are multiples of 16.
Tensor fp8_linear(Context& context, const Tensor& x, const Tensor& weight, const Fp8Matrix& narrow,
                  const Tensor& bias = {});

}  // namespace trafo::ops
