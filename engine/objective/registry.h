// The kinds of objectives.
#pragma once

#include <memory>

#include "engine/objective/distillation/distillation.h"

namespace trafo {

// Options of all objectives. One that an objective does not read has no effect.
struct ObjectiveOptions {
  double label_smoothing = 0;
  DistillationOptions distillation = {};
};

// The objective that the options and the teacher ask for. `teacher` may be null.
std::unique_ptr<Objective> make_objective(const ObjectiveOptions& options,
                                          const std::shared_ptr<const Teacher>& teacher);

}  // namespace trafo
