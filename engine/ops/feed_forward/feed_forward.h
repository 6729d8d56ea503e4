// y = dropout(activation(x U^T + bias)) D^T: a feed-forward block without its output bias, which
// the following bias_dropout_residual adds.
//
// x [.., C], up U [F, C], up_bias [F], down D [C', F] -> [.., C']. It is linear, bias_act_dropout
// and linear. Where the GEMMs of the backend have epilogues and Context::gemm_epilogues() is on,
// ReLU and GELU are part of the GEMMs: the first writes h = x U^T (not for ReLU) and the result of
// bias_act_dropout, and the one that makes the gradient of this result also makes the gradient of h
// and sums it to the gradient of the bias.
#pragma once

#include "engine/core/numeric/philox.h"
#include "engine/ops/activation/activation.h"

namespace trafo::ops {

Tensor feed_forward(Context& context, const Tensor& x, const Tensor& up, const Tensor& up_bias,
                    const Tensor& down, Activation kind, const Dropout& dropout);

}  // namespace trafo::ops
