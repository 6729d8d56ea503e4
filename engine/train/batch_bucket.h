// Sizes of a micro-batch, on which the memory of a step depends.
#pragma once

#include <compare>
#include <cstdint>

#include "engine/data/batcher.h"
#include "engine/models/model_config.h"

namespace trafo {

// On an accelerator, batches are filled up to one of a few dozen shapes: the tokens that fill one
// up form sentences of their own at the end, and their labels are ignored, so that real tokens keep
// their places, and with them their dropout masks.
struct BatchBucket {
  int64_t sentences = 0;
  int64_t source_tokens = 0, target_tokens = 0;
  int64_t longest_source = 0, longest_target = 0;
  bool with_source = true;  // not for a decoder_lm
  bool weighted = false;    // labels have weights
  bool first = true;        // of its update: gradients are overwritten instead of added to

  auto operator<=>(const BatchBucket&) const = default;
};

// Of a batch that fits together (validate_batch).
BatchBucket exact_bucket(const PackedBatchHost& batch, const ModelConfig& config, bool first);

// The shape that a batch of these sizes is filled up to: a side gets at most a sixteenth more
// tokens, or 15.
BatchBucket padded_bucket(const BatchBucket& exact);

// A batch of these sizes, of token 0, in sentences of as equal a length as possible.
PackedBatchHost batch_of(const BatchBucket& shape);

}  // namespace trafo
