#pragma once

namespace trafo {

// Registers the kernels that backward adds gradients with. make_context() calls it; so must whoever
// runs backward without a device, for a plan.
void register_gradient_kernels();

}  // namespace trafo
