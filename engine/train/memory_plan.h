// The memory that training will take, known before it starts and without the device.
#pragma once

#include <span>
#include <vector>

#include "engine/models/model_config.h"
#include "engine/nn/parameter_store.h"
#include "engine/train/batch_bucket.h"
#include "engine/train/options.h"

namespace trafo {

// The largest number from `low` to `most`, to within one part in 128, for which fits(number) is
// true, as it then is for all smaller ones; 0: not even for `low`.
template <class Fits>
int64_t largest_that(Fits fits, int64_t low, int64_t most) {
  if (low > most || !fits(low)) return 0;
  int64_t high = low;
  while (high < most) {
    high = high > most / 2 ? most : 2 * high;
    if (!fits(high)) break;
    low = high;
  }
  while (high - low > 1 && high - low > low / 128) {
    const int64_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

// Bytes, as the device's allocator counts them: Backend::memory_stats() shows `total` as the peak
// of a trainer that has had batches of these sizes and none that needs more.
struct MemoryPlan {
  int64_t weights = 0;      // with float32 masters and constant tables
  int64_t gradients = 0;    // float32 or the model's dtype
  int64_t optimizer = 0;    // moments, EMA of the weights, table of parameter groups
  int64_t activations = 0;  // the arena of forward and backward
  int64_t total = 0;        // with the batch and small change
};

// Sizes of a micro-batch; decoder_lm has no source.
struct BatchSizes {
  int64_t sentences = 0;
  int64_t source_tokens = 0, target_tokens = 0;
};

// Of a model and its trainer, from a dry run on the meta device; the device need not exist.
// `groups`: parameters of such a model, whose frozen ones are planned as frozen; default: all are
// trainable. INVALID_ARGUMENT for sizes that are no batch of this model.
MemoryPlan plan_training(Device device, const ModelConfig& config, DType dtype,
                         const TrainOptions& options, const BatchSizes& sizes,
                         const ParameterStore* groups = nullptr);
MemoryPlan plan_training(Device device, const ModelConfig& config, DType dtype,
                         const TrainOptions& options, std::span<const BatchBucket> shapes,
                         const ParameterStore* groups = nullptr);

// `sizes` times the largest factor whose plan has room in options.memory_limit, to within one part
// in 128; sentences keep their lengths. OUT_OF_MEMORY, of a device OUT_OF_DEVICE_MEMORY: not even
// one sentence has.
BatchSizes largest_batch(Device device, const ModelConfig& config, DType dtype,
                         const TrainOptions& options, const BatchSizes& sizes);

// The shapes as they come in an update: each also behind the first of its micro-batches, if the
// options have updates of several.
std::vector<BatchBucket> of_an_update(std::span<const BatchBucket> shapes,
                                      const TrainOptions& options);

}  // namespace trafo
