// Matrix products. Backward: dA = dC B^T, dB = A^T dC, each accumulated straight into the gradient
// buffer.
#pragma once

#include "engine/runtime/context.h"

namespace trafo::ops {

struct MatmulOptions {
  bool transpose_a = false;  // a holds [.., k, m]
  bool transpose_b = false;  // b holds [.., n, k]
};

// [m, k] x [k, n] -> [m, n], or batched [b, m, k] x [b, k, n] -> [b, m, n]. Last dimensions must be
// contiguous or are copied.
Tensor matmul(Context& context, const Tensor& a, const Tensor& b,
              const MatmulOptions& options = {});

// y = x W^T + bias: x [.., in], weight [out, in], bias [out] or undefined -> [.., out].
Tensor linear(Context& context, const Tensor& x, const Tensor& weight, const Tensor& bias = {});

}  // namespace trafo::ops
