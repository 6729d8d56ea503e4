// y = dropout(activation(x + bias)): what follows the first product of a feed-forward block.
//
// x [.., C], bias [C] or undefined. Saved: x, for ReLU y instead. dbias is summed over a fixed row
// partition, in the pass that makes dx.
#pragma once

#include "engine/core/numeric/philox.h"
#include "engine/ops/activation/activation.h"

namespace trafo {

struct BiasActDropoutForwardParams {
  DType dtype;
  Activation activation;
  Dropout dropout;
  int64_t rows, width;
  const void* x;
  const void* bias;  // or null
  void* y;
  uint32_t* largest;  // place for the largest magnitude of y (Fp8Magnitudes), or null
};

struct BiasActDropoutBackwardParams {
  DType dtype;
  Activation activation;
  Dropout dropout;
  int64_t rows, width;
  bool accumulate_dx, accumulate_dbias;
  const void* x;  // for ReLU y does as well, without bias
  const void* bias;
  const void* dy;
  void* dx;           // null where not wanted
  void* dbias;        // [width], stat_dtype(dtype)
  uint32_t* largest;  // of dx, as in forward
};

namespace ops {

Tensor bias_act_dropout(Context& context, const Tensor& x, const Tensor& bias, Activation kind,
                        const Dropout& dropout);
Tensor bias_act_dropout_reference(Context& context, const Tensor& x, const Tensor& bias,
                                  Activation kind, const Dropout& dropout);

}  // namespace ops
}  // namespace trafo
