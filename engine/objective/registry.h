// The kinds of objectives.
#pragma once

#include <memory>

#include "engine/core/generated/option_enums.h"
#include "engine/objective/distillation/distillation.h"
#include "engine/objective/dpo/dpo.h"

namespace trafo {

// Options of all objectives. One that an objective does not read has no effect.
struct ObjectiveOptions {
  ObjectiveKind kind = ObjectiveKind::cross_entropy;
  double label_smoothing = 0;
  DistillationOptions distillation = {};
  DpoOptions dpo = {};
};

// The role of the other model of an objective.
FrozenRole frozen_role(ObjectiveKind kind);

// `frozen`: the other model of the objective, or null. INVALID_ARGUMENT: the objective has no model
// of this role.
std::unique_ptr<Objective> make_objective(const ObjectiveOptions& options,
                                          const std::shared_ptr<const FrozenModel>& frozen);

}  // namespace trafo
