// A packed batch on the device: every token of every sentence in one row dimension, no padding.
#pragma once

#include "engine/core/tensor.h"

namespace trafo {

// Sentence i of a side owns rows cu_seqlens[i] .. cu_seqlens[i+1]. decoder_lm uses the target side
// alone.
struct Batch {
  int64_t sentences = 0;
  Tensor source_ids, source_positions;  // [Ts] int32
  Tensor source_cu_seqlens;             // [sentences + 1] int32
  Tensor target_in, target_positions;   // [Tt] int32
  Tensor target_out;                    // [Tt] int32, what is to be predicted at each row
  Tensor target_cu_seqlens;             // [sentences + 1] int32
  Tensor target_weights;                // [Tt] of the model's dtype; undefined: all 1
  double label_count = 0;               // sum of the weights: what a mean loss is divided by
};

// Where the dropout of one forward pass lives.
struct DropoutPass {
  uint64_t seed = 0;
  uint32_t step = 0;      // number of the forward pass in the run
  bool training = false;  // off: no dropout anywhere
};

}  // namespace trafo
