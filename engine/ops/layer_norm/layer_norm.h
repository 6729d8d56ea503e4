// Layer norm (Ba et al., arXiv 1607.06450) over the last dimension: y = (x - mean) * rstd * gamma +
// beta.
//
// x [.., C], gamma, beta [C]. Mean and mean of squares are reduced in one pass, on values shifted
// by the row's first element, so that a large mean does not cancel. Statistics (double for f64,
// else float) are saved for backward: mean, rstd [rows]. dx = rstd * (g - mean(g) - xhat * mean(g
// xhat)) with g = dy gamma, both means in one pass; dgamma = sum dy xhat, dbeta = sum dy over a
// fixed row partition.
#pragma once

#include "engine/runtime/context.h"

namespace trafo {

struct LayerNormForwardParams {
  DType dtype;
  double epsilon;  // added to the variance
  int64_t rows, width;
  const void* x;
  const void* gamma;
  const void* beta;
  void* y;
  void* mean;         // [rows], stat_dtype(dtype)
  void* rstd;         // [rows]
  void* saved_mean;   // [rows, 2], as NormApplyParams, or null
  uint32_t* largest;  // place for the largest magnitude of y (Fp8Magnitudes), or null
};

// The norm of rows whose statistics are known, bit for bit what the forward kernels wrote:
// y = (x - saved_mean[0] - saved_mean[1]) * rstd * gamma + beta.
struct NormApplyParams {
  DType dtype;
  int64_t rows, width;
  const void* x;
  const void* gamma;
  const void* beta;
  const void* saved_mean;  // [rows, 2], stat_dtype(dtype): their sum is more exact than `mean`
  const void* rstd;        // [rows]
  void* y;
  uint32_t* largest;  // as LayerNormForwardParams
};

struct LayerNormBackwardParams {
  DType dtype;
  int64_t rows, width;
  bool accumulate_dx, accumulate_dgamma, accumulate_dbeta;
  const void* x;
  const void* gamma;
  const void* mean;
  const void* rstd;
  const void* dy;
  const void* dresidual;  // [rows, width] added to dx, or null
  void* dx;               // null where not wanted
  void* dgamma;           // [width], stat_dtype(dtype), as dbeta
  void* dbeta;
};

namespace ops {

Tensor layer_norm(Context& context, const Tensor& x, const Tensor& gamma, const Tensor& beta,
                  double epsilon = 1e-5);
Tensor layer_norm_reference(Context& context, const Tensor& x, const Tensor& gamma,
                            const Tensor& beta, double epsilon);

// Returns a function that computes a norm of `x` once more, bit for bit (Variable::recompute).
std::function<Tensor(Context&)> norm_recompute(const Tensor& x, const Tensor& gamma,
                                               const Tensor& beta, const Tensor& saved_mean,
                                               const Tensor& rstd);

}  // namespace ops
}  // namespace trafo
