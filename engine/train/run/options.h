// How a model is trained. The table is schema/training.toml.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/objective/objective_options.h"
#include "engine/optim/optimizer.h"
#include "engine/optim/schedule.h"
#include "engine/runtime/context.h"
#include "engine/text/tokenizer/generated/frame_token.h"
#include "engine/train/run/period.h"

namespace trafo {

// Sentences that are sorted by length together. It is one for corpora in memory and on disk, so
// that both are shuffled alike.
inline constexpr int64_t kSortWindow = 1 << 18;

struct TrainOptions : OptimizerOptions, ObjectiveOptions {
#include "engine/train/run/generated/train_options.inc"
  // Whether another thread writes checkpoints while training continues. No value: on an
  // accelerator.
  std::optional<bool> background_saves;
};

// Throws INVALID_ARGUMENT naming the field and what it may be.
void validate(const TrainOptions& options);

// The learning-rate schedule of a model of this width.
ScheduleOptions schedule_options(const TrainOptions& options, int64_t width);

// The values a run keeps from its first update to its last, as a JSON object.
std::string fixed_options_json(const TrainOptions& options);

}  // namespace trafo
