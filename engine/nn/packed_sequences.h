// The sequences of a packed batch.
#pragma once

#include "engine/core/tensor.h"

namespace trafo::nn {

// Sequence i owns tokens cu_seqlens[i] .. cu_seqlens[i+1] of [T, width]; there is no padding.
struct PackedSequences {
  Tensor cu_seqlens;      // [sequences + 1] int32
  int64_t longest = 0;    // tokens of the longest sequence; 0: unknown
  Tensor positions = {};  // [T] int32, of each token in its sequence; for rotary positions
};

}  // namespace trafo::nn
