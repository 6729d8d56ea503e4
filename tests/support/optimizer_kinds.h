// The optimizers, for tests that go over all of them.
#pragma once

#include "engine/optim/optimizer.h"

namespace trafo::testing {

inline constexpr OptimizerKind kOptimizerKinds[] = {
#define TRAFO_OPTIMIZER(name, ...) OptimizerKind::name,
#include "engine/optim/generated/optimizers.def"
#undef TRAFO_OPTIMIZER
};

}  // namespace trafo::testing
