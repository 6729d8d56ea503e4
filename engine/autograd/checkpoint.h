// Gradient checkpointing (Chen et al., arXiv 1604.06174): keeps the inputs of a region and
// recomputes the rest in backward.
#pragma once

#include <functional>
#include <vector>

#include "engine/runtime/context.h"

namespace trafo {

using RegionFn = std::function<std::vector<Tensor>(Context&, const std::vector<Tensor>&)>;

// Runs `region(inputs)` without recording its ops and returns its outputs. Backward runs the region
// again, so it must depend on its inputs and on leaves (parameters) alone. Dropout does, because
// its masks are counter-based. Gradients reach `inputs` and every leaf that the region uses. They
// are the same bits as without checkpointing.
std::vector<Tensor> checkpoint(Context& context, const std::vector<Tensor>& inputs,
                               RegionFn region);

}  // namespace trafo
