// The mean of the rows of each packed sequence: one vector for each text.
#pragma once

#include "engine/runtime/context.h"

namespace trafo::ops {

// x [T, ..] and cu_seqlens [B + 1] int32 -> [B, ..]: row b is the mean of the rows cu_seqlens[b] to
// cu_seqlens[b + 1] - 1, zeros for an empty segment. Sums are made in float32, of float64 in
// float64. cu_seqlens is read back from an accelerator. INVALID_ARGUMENT: it does not rise from 0
// to T.
Tensor segment_mean(Context& context, const Tensor& x, const Tensor& cu_seqlens);

}  // namespace trafo::ops
