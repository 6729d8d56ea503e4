// How much device memory a training run needs, whether it is available, and what would fit.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "engine/backend/device_memory.h"
#include "engine/data/batcher.h"
#include "engine/models/model.h"
#include "engine/runtime/context.h"
#include "engine/train/plan/memory_plan.h"
#include "engine/train/run/training_data.h"

namespace trafo {

struct RunPlan {
  MemoryPlan memory;
  std::vector<BatchBucket> buckets;  // of the largest batches, for Trainer::reserve
  int64_t batch_tokens = 0;
  std::optional<DeviceMemory> device;  // before training; none: not reported
  int64_t limit = 0;                   // bytes the run may take; 0: no limit is known
};

// batch_fit leaves 1 / kReservedShare of the free memory unused, for allocations that are not
// planned: validation and its translations, libraries, batches of later epochs.
inline constexpr int64_t kReservedShare = 16;

// Buckets that together cover every batch of the first window (or the first epoch, if it is one
// window) with this token budget.
std::vector<BatchBucket> largest_buckets(const Batcher& batcher, const ModelSpec& spec,
                                         int64_t batch_tokens);

// Plans a run with this batcher, which is at its beginning. options.batch_fit: batch_tokens is the
// largest budget whose plan fits the memory, but at least the longest pair. `resumed`: the batches
// are those of a saved run. `group`: of which this is one rank. OUT_OF_MEMORY (of an accelerator:
// OUT_OF_DEVICE_MEMORY) if the plan does not fit; the message has the plan and settings that would
// fit.
RunPlan plan_run(const Context& context, const Model& model, const Batcher& batcher,
                 const TrainingData& data, const TrainOptions& options, bool resumed,
                 const TrainingGroup& group = {});

}  // namespace trafo
