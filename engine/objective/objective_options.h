// The options of all objectives. One that an objective does not read has no effect.
#pragma once

#include "engine/core/generated/option_enums.h"

namespace trafo {

struct ObjectiveOptions {
#include "engine/objective/generated/objective_options.inc"
};

}  // namespace trafo
