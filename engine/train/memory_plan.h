// The memory that training will take on an accelerator, known before it starts and without the
// device.
#pragma once

#include "engine/models/model_config.h"
#include "engine/train/options.h"

namespace trafo {

// Bytes, as the device's allocator counts them: Backend::memory_stats() shows `total` as the peak
// of a trainer that has had a batch of these sizes and none that needs more.
struct MemoryPlan {
  int64_t weights = 0;      // with float32 masters and constant tables
  int64_t gradients = 0;    // float32 or the model's dtype
  int64_t optimizer = 0;    // moments
  int64_t activations = 0;  // the arena of forward and backward
  int64_t total = 0;        // with the batch and small change
};

// Sizes of a micro-batch; decoder_lm has no source.
struct BatchSizes {
  int64_t sentences = 0;
  int64_t source_tokens = 0, target_tokens = 0;
};

// Runs one update on a device that only notes allocations, in host time. INVALID_ARGUMENT for sizes
// that are no batch of this model; `device` is a CUDA device and need not exist.
MemoryPlan plan_training(Device device, const ModelConfig& config, DType dtype,
                         const TrainOptions& options, const BatchSizes& sizes);

}  // namespace trafo
