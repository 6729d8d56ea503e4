// How much memory training will need, computed before it starts and without the device.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/models/adapter_config.h"
#include "engine/models/batch_bucket.h"
#include "engine/models/model_config.h"
#include "engine/nn/parameter_store.h"
#include "engine/train/parallel/training_group.h"
#include "engine/train/run/options.h"

namespace trafo {

// The largest number from `low` to `most` for which fits(number) is true, to within one part in
// 128; 0 if fits(low) is false. fits must be true for all numbers below one for which it is.
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

// Bytes as the device's allocator counts them. `total` is the peak in Backend::memory_stats() of a
// trainer whose largest batches have these sizes.
struct MemoryPlan {
  int64_t weights = 0;      // with float32 masters and constant tables
  int64_t gradients = 0;    // float32 or the model's dtype
  int64_t optimizer = 0;    // moments, EMA of the weights, table of parameter groups
  int64_t teacher = 0;      // the weights of the teacher
  int64_t activations = 0;  // the arena of forward and backward
  int64_t total = 0;        // also the batch and small buffers
};

// Sizes of a micro-batch; decoder_lm has no source.
struct BatchSizes {
  int64_t sentences = 0;
  int64_t source_tokens = 0, target_tokens = 0;
};

// Which parameters are planned as frozen, and the teacher or the reference of the model. By default
// all are trainable, without an adapter.
struct PlannedGroups {
  const ParameterStore* like = nullptr;  // those frozen here, in a model of the same configuration
  std::span<const std::string> frozen =
      {};  // patterns of names, as of ParameterStore::set_trainable
  const ModelConfig* teacher = nullptr;
  const AdapterConfig* adapter = nullptr;  // which is trained instead of the weights
};

// The memory of a model and its trainer, from a dry run on the meta device. The device itself need
// not exist. With a group, for one rank of it. INVALID_ARGUMENT if the model has no batches of
// these sizes. NOT_FOUND: a pattern of `groups` matches no parameter.
MemoryPlan plan_training(Device device, const ModelConfig& config, DType dtype,
                         const TrainOptions& options, const BatchSizes& sizes,
                         const PlannedGroups& groups = {}, const TrainingGroup& group = {});
MemoryPlan plan_training(Device device, const ModelConfig& config, DType dtype,
                         const TrainOptions& options, std::span<const BatchBucket> buckets,
                         const PlannedGroups& groups = {}, const TrainingGroup& group = {});

// `sizes` times the largest factor whose plan fits options.memory_limit, to within one part in 128.
// Sentences keep their lengths. OUT_OF_MEMORY (of an accelerator: OUT_OF_DEVICE_MEMORY) if one
// sentence does not fit.
BatchSizes largest_batch(Device device, const ModelConfig& config, DType dtype,
                         const TrainOptions& options, const BatchSizes& sizes,
                         const PlannedGroups& groups = {}, const TrainingGroup& group = {});

// The buckets as the first micro-batch of an update. With gradient accumulation also as a later
// one, which adds to the gradients and so allocates differently.
std::vector<BatchBucket> buckets_of_an_update(std::span<const BatchBucket> buckets,
                                              const TrainOptions& options);

}  // namespace trafo
