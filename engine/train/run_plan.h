// What a training run will take of its device's memory, whether that is there, and what would fit.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "engine/backend/device_memory.h"
#include "engine/data/batcher.h"
#include "engine/models/model.h"
#include "engine/runtime/context.h"
#include "engine/train/memory_plan.h"
#include "engine/train/training_data.h"

namespace trafo {

struct RunPlan {
  MemoryPlan memory;
  std::vector<BatchBucket> buckets;  // of the largest batches, for Trainer::reserve
  int64_t batch_tokens = 0;
  std::optional<DeviceMemory> device;  // before training; none: the device does not say
  int64_t limit = 0;                   // bytes the run may take; 0: no limit is known
};

// The share of a device's free memory that a chosen budget leaves alone, for what is not planned:
// validation and its translations, what libraries take, batches of later epochs.
inline constexpr int64_t kReservedShare = 16;

// Shapes that the batches of the first window (of the first epoch, if it is one) come in with such
// a budget, without those that others cover.
std::vector<BatchBucket> largest_buckets(const Batcher& batcher, const ModelConfig& config,
                                         int64_t batch_tokens);

// The plan of a run with this batcher, at its beginning. options.batch_fit: batch_tokens is
// the largest budget whose plan fits the memory, but never less than the longest pair. `continued`:
// the batches are those of a saved run. OUT_OF_MEMORY (of a device: OUT_OF_DEVICE_MEMORY) if the
// plan does not fit, with the plan and with what would.
RunPlan plan_run(const Context& context, const Model& model, const Batcher& batcher,
                 const TokenizedCorpus* valid, const TrainOptions& options, bool continued);

const char* recompute_name(Recompute recompute);

}  // namespace trafo
