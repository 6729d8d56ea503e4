// y = dropout(activation(x U^T + bias)) D^T: a feed-forward block without its output bias, which
// the following bias_dropout_residual adds.
//
// x [.., C], up U [F, C], up_bias [F], down D [C', F] -> [.., C']. It is linear, bias_act_dropout
// and linear. Where Context::gemm_epilogues() asks for it and the GEMMs of the backend have
// epilogues, GELU without dropout is part of the GEMMs: the first writes GELU of
// h = x U^T + bias and h, and the one that makes the activation's gradient multiplies it with
// GELU's derivative before it is rounded.
#pragma once

#include "engine/core/philox.h"
#include "engine/ops/activation/activation.h"

namespace trafo::ops {

Tensor feed_forward(Context& context, const Tensor& x, const Tensor& up, const Tensor& up_bias,
                    const Tensor& down, Activation kind, const Dropout& dropout);

}  // namespace trafo::ops
