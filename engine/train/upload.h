// Packed batches from host memory to the device of a context.
#pragma once

#include "engine/data/batcher.h"
#include "engine/models/batch.h"
#include "engine/models/model_config.h"
#include "engine/runtime/context.h"

namespace trafo {

// What upload() refuses.
void validate_batch(const Context& context, const PackedBatchHost& host, const ModelConfig& config);

// For a model of `dtype`. Arrays whose lengths do not fit together are SHAPE_MISMATCH, tokens the
// model does not know INVALID_ARGUMENT (on the CPU found by the ops that use them); a batch without
// a label that counts is allowed.
Batch upload(Context& context, const PackedBatchHost& host, const ModelConfig& config, DType dtype);

// The form of corpus that an architecture trains on.
inline SequenceForm sequence_form(Architecture architecture) {
  return architecture == Architecture::decoder_lm ? SequenceForm::decoder_only
                                                  : SequenceForm::encoder_decoder;
}

}  // namespace trafo
