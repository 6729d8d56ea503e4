// A layer norm is bias_dropout_residual with a norm, without bias and dropout. x is the sum, and
// the gradient of the sum goes to the residual. Both have the same backward on every device.
#pragma once

#include "engine/ops/bias_dropout_residual/bias_dropout_residual.h"
#include "engine/ops/layer_norm/layer_norm.h"

namespace trafo {

inline BiasDropoutResidualBackwardParams add_norm_backward_params(
    const LayerNormBackwardParams& p) {
  BiasDropoutResidualBackwardParams fused{};
  fused.dtype = p.dtype;
  fused.rows = p.rows;
  fused.width = p.width;
  fused.accumulate_dresidual = p.accumulate_dx;
  fused.accumulate_dgamma = p.accumulate_dgamma;
  fused.accumulate_dbeta = p.accumulate_dbeta;
  fused.sum = p.x;
  fused.gamma = p.gamma;
  fused.mean = p.mean;
  fused.rstd = p.rstd;
  fused.dsum = p.dresidual;
  fused.dnormed = p.dy;
  fused.dresidual = p.dx;
  fused.dgamma = p.dgamma;
  fused.dbeta = p.dbeta;
  return fused;
}

}  // namespace trafo
