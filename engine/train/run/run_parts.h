// The parts of a training run that its classes share. TrainingRun owns them.
#pragma once

#include "engine/models/model.h"
#include "engine/train/checkpoint/state.h"
#include "engine/train/parallel/training_group.h"
#include "engine/train/run/options.h"
#include "engine/train/run/period.h"
#include "engine/train/run/training_data.h"
#include "engine/train/step/gemm_tuning.h"
#include "engine/train/step/trainer.h"

namespace trafo {

struct RunParts {
  Context& context;
  Model& model;
  const TrainingGroup& group;
  const TrainingData& data;
  const TrainOptions& options;
  Trainer& trainer;
  GemmTuning& gemm_tuning;
  RunState& state;

  Progress progress() const {
    return {state.trainer.update, state.target_tokens, state.position.epoch};
  }
};

}  // namespace trafo
