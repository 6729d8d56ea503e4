// sum = residual + dropout(x + bias), and optionally normed = layer_norm(sum). One pass computes
// everything between two sublayers of a transformer.
//
// x, residual [.., C]; bias [C] or undefined; gamma, beta [C] for the norm. Saved: sum, mean and
// rstd [rows]. Backward adds the gradients of both outputs, then gives dresidual, dx (masked),
// dbias, dgamma and dbeta; sums over rows use a fixed partition.
#pragma once

#include "engine/core/numeric/philox.h"
#include "engine/runtime/context.h"

namespace trafo {

struct BiasDropoutResidualForwardParams {
  DType dtype;
  Dropout dropout;
  double epsilon;
  int64_t rows, width;
  const void* x;
  const void* bias;  // or null
  const void* residual;
  const void* gamma;  // null: no layer norm
  const void* beta;
  void* sum;
  void* normed;
  void* mean;  // [rows], stat_dtype(dtype), as rstd
  void* rstd;
  void* saved_mean;   // [rows, 2], see NormApplyParams, or null
  uint32_t* largest;  // place for the largest magnitude of `normed` (Fp8Magnitudes), or null
};

struct BiasDropoutResidualBackwardParams {
  DType dtype;
  Dropout dropout;
  int64_t rows, width;
  bool accumulate_dx, accumulate_dresidual, accumulate_dbias, accumulate_dgamma, accumulate_dbeta;
  const void* sum;
  const void* gamma;  // null: no layer norm
  const void* mean;
  const void* rstd;
  const void* dsum;     // gradient of `sum`; null when nothing used it
  const void* dnormed;  // gradient of `normed`; null without a norm or when nothing used it
  void* dx;             // null where not wanted
  void* dresidual;
  void* dbias;  // [width], stat_dtype(dtype), as dgamma and dbeta
  void* dgamma;
  void* dbeta;
  uint32_t* largest;  // of dx, or without dx of dresidual, as in forward; not where it accumulates
};

namespace ops {

Tensor bias_dropout_residual(Context& context, const Tensor& x, const Tensor& bias,
                             const Tensor& residual, const Dropout& dropout);
Tensor bias_dropout_residual_reference(Context& context, const Tensor& x, const Tensor& bias,
                                       const Tensor& residual, const Dropout& dropout);

struct ResidualNorm {
  Tensor sum;
  Tensor normed;
  // Under Recompute::full, where nothing is recorded: what computes `normed` once more from `sum`.
  // Variables that are recorded under Recompute::selective have it.
  std::function<Tensor(Context&)> recompute = nullptr;
};
ResidualNorm bias_dropout_residual_norm(Context& context, const Tensor& x, const Tensor& bias,
                                        const Tensor& residual, const Tensor& gamma,
                                        const Tensor& beta, double epsilon, const Dropout& dropout);
ResidualNorm bias_dropout_residual_norm_reference(Context& context, const Tensor& x,
                                                  const Tensor& bias, const Tensor& residual,
                                                  const Tensor& gamma, const Tensor& beta,
                                                  double epsilon, const Dropout& dropout);

}  // namespace ops
}  // namespace trafo
