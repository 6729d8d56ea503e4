// Matrix products. Backward: dA = dC B^T, dB = A^T dC, each accumulated straight into the gradient
// buffer.
#pragma once

#include "engine/runtime/context.h"

namespace trafo::ops {

struct MatmulOptions {
  bool transpose_a = false;  // a holds [.., k, m]
  bool transpose_b = false;  // b holds [.., n, k]
};

// [m, k] x [k, n] -> [m, n], or batched [.., m, k] x [.., k, n] -> [.., m, n]: the leading
// dimensions broadcast as in NumPy. A vector [k] on the left is [1, k], on the right [k, 1], and
// the dimension of size 1 is left out of the result. Strides that a GEMM cannot read are copied.
Tensor matmul(Context& context, const Tensor& a, const Tensor& b,
              const MatmulOptions& options = {});

// y = x W^T + bias: x [.., in], weight [out, in], bias [out] or undefined -> [.., out].
Tensor linear(Context& context, const Tensor& x, const Tensor& weight, const Tensor& bias = {});

}  // namespace trafo::ops
