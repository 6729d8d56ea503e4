// A packed batch on the device: every token of every sentence in one row dimension, no padding.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "engine/models/model_config.h"
#include "engine/nn/dropout_pass.h"
#include "engine/runtime/context.h"

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
  Tensor target_weights;                // [Tt] stat_dtype of the model's dtype; undefined: all 1
  double label_count = 0;               // sum of the weights: what a mean loss is divided by

  // What spares an accelerator read-backs. Tokens of the longest sentence of a side; 0: unknown.
  int64_t longest_source = 0, longest_target = 0;
  bool indices_validated = false;  // ids, positions, labels and weights: by validate_indices below
};

// Ids, positions or labels of a batch in host memory, before they go to an accelerator, where
// nobody looks at them any more: INVALID_ARGUMENT, naming the first token that is outside 0 to
// limit - 1 and is not `ignored`. On the CPU the ops look themselves.
void validate_indices(const Context& context, const char* name, std::span<const int32_t> indices,
                      int64_t limit, std::optional<int32_t> ignored = {});

// The longest sentence of cu_seqlens in host memory.
int64_t longest_sentence(std::span<const int32_t> cu_seqlens);

}  // namespace trafo
