// RMS norm (Zhang & Sennrich, arXiv 1910.07467) over the last dimension: y = x rstd gamma with rstd
// = 1 / sqrt(mean(x^2) + epsilon). Alone, or after a residual connection as in Llama: sum =
// residual + dropout(x), y = the norm of sum.
//
// x, residual [.., C], gamma [C]. Saved: what was normalised and rstd [rows] (double for f64, else
// float). The gradient of what was normalised is dsum + rstd (g - xhat mean(g xhat)) with
// g = dy gamma, xhat = x rstd; dgamma = sum dy xhat over a fixed row partition.
#pragma once

#include "engine/core/numeric/philox.h"
#include "engine/runtime/context.h"

namespace trafo {

struct RmsNormForwardParams {
  DType dtype;
  Dropout dropout;  // of x, with a residual
  double epsilon;
  bool rstd_known;  // rstd is read, not written: y is, bit for bit, what it was
  int64_t rows, width;
  const void* x;
  const void* residual;  // or null
  const void* gamma;
  void* sum;  // with a residual
  void* y;
  void* rstd;         // [rows], stat_dtype(dtype), or null
  uint32_t* largest;  // place for the largest magnitude of y (Fp8Magnitudes), or null
};

struct RmsNormBackwardParams {
  DType dtype;
  Dropout dropout;
  int64_t rows, width;
  bool accumulate_dx, accumulate_dresidual, accumulate_dgamma;
  const void* sum;  // what was normalised
  const void* gamma;
  const void* rstd;
  const void* dsum;  // gradient of `sum` beside the one through the norm, or null
  const void* dy;
  void* dx;           // the gradient of `sum` times the dropout factors; null where not wanted
  void* dresidual;    // the gradient of `sum`
  void* dgamma;       // [width], stat_dtype(dtype)
  uint32_t* largest;  // of dx, or without dx of dresidual, as in forward; not where it accumulates
};

namespace ops {

Tensor rms_norm(Context& context, const Tensor& x, const Tensor& gamma, double epsilon = 1e-6);
Tensor rms_norm_reference(Context& context, const Tensor& x, const Tensor& gamma, double epsilon);

struct ResidualRmsNorm {
  Tensor sum;
  Tensor normed;
  // As ResidualNorm::recompute.
  std::function<Tensor(Context&)> recompute = nullptr;
};
ResidualRmsNorm residual_rms_norm(Context& context, const Tensor& x, const Tensor& residual,
                                  const Tensor& gamma, double epsilon, const Dropout& dropout);

}  // namespace ops
}  // namespace trafo
