// A layer norm is the seam of bias_dropout_residual without bias and dropout: its x is the sum, and
// the gradient of the sum goes to the residual. Its backward on every device is the seam's.
#pragma once

#include "engine/ops/bias_dropout_residual/bias_dropout_residual.h"
#include "engine/ops/layer_norm/layer_norm.h"

namespace trafo {

inline BiasDropoutResidualBackwardParams add_norm_backward_params(
    const LayerNormBackwardParams& p) {
  BiasDropoutResidualBackwardParams seam{};
  seam.dtype = p.dtype;
  seam.rows = p.rows;
  seam.width = p.width;
  seam.accumulate_dresidual = p.accumulate_dx;
  seam.accumulate_dgamma = p.accumulate_dgamma;
  seam.accumulate_dbeta = p.accumulate_dbeta;
  seam.sum = p.x;
  seam.gamma = p.gamma;
  seam.mean = p.mean;
  seam.rstd = p.rstd;
  seam.dsum = p.dresidual;
  seam.dnormed = p.dy;
  seam.dresidual = p.dx;
  seam.dgamma = p.dgamma;
  seam.dbeta = p.dbeta;
  return seam;
}

}  // namespace trafo
