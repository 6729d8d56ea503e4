// A packed batch on the device: the tokens of all sentences in one dimension, without padding.
#pragma once

#include <cstdint>
#include <span>

#include "engine/data/packed_batch.h"
#include "engine/models/model_config.h"
#include "engine/nn/dropout_pass.h"
#include "engine/runtime/context.h"

namespace trafo {

// The device form of PackedBatchHost: a tensor for each field of engine/data/batch_fields.def.
// Fields of a side that the model does not have, and optional ones that the batch leaves out, are
// undefined.
struct Batch {
  int64_t sentences = 0;
#define BATCH_FIELD(name, ...) Tensor name;
#include "engine/data/batch_fields.def"
#undef BATCH_FIELD
  double label_count = 0;  // sum of the weights: what a mean loss is divided by
  // [1], of an objective that is not linear in the weights, on an accelerator: its loss is
  // multiplied by it. Undefined: 1.
  Tensor loss_scale;

  // Known on the host, so that an accelerator need not be read back. Tokens of the longest sentence
  // of a side; 0: unknown.
  int64_t longest_source = 0, longest_target = 0;
  bool indices_validated = false;  // every value is what its FieldCheck allows

  Tensor& field(FieldId id);
};

// Tokens of the longest sentence; cu_seqlens is in host memory.
int64_t longest_sentence(std::span<const int32_t> cu_seqlens);

}  // namespace trafo
