// A linear layer of training with FP8 GEMMs.
#pragma once

#include "engine/ops/fp8/fp8.h"

namespace trafo::ops {

// y = x W^T + bias as ops::linear (ops/matmul), with x and W in E4M3. In backward dx is the product
// of dy in E5M2 and W in E4M3. dW and dbias are those of ops::linear. W is kept for backward in
// FP8. x is float32 on the CPU and bfloat16 on CUDA; in and out are multiples of 16.
Tensor fp8_linear(Context& context, const Tensor& x, const Tensor& weight, const Tensor& bias = {});

}  // namespace trafo::ops
