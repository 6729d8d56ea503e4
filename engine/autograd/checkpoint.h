// Gradient checkpointing (Chen et al., arXiv 1604.06174): keep a region's inputs, recompute the
// rest in backward.
#pragma once

#include <functional>
#include <vector>

#include "engine/runtime/context.h"

namespace trafo {

using RegionFn = std::function<std::vector<Tensor>(Context&, const std::vector<Tensor>&)>;

// Runs `region(inputs)` without recording its ops and returns its outputs. Backward runs it again,
// so it must be a function of its inputs and of leaves (parameters) alone; dropout is, by
// construction. Gradients reach `inputs` and every leaf the region uses, and are bitwise those of
// running it unchecked.
std::vector<Tensor> checkpoint(Context& context, const std::vector<Tensor>& inputs,
                               RegionFn region);

}  // namespace trafo
