// The norm of a flat gradient workspace, and what to multiply it with.
#pragma once

#include "engine/runtime/context.h"

namespace trafo {

struct GradientNorm {
  double norm = 0;  // of scale_in * gradients, before clipping; NaN or infinity if any element is
  double scale =
      1;  // scale_in times the clipping factor: what the optimizer multiplies gradients with
  bool finite = true;
};

// `gradients` is contiguous, of a dtype the device computes with. scale_in averages over what was
// accumulated. A norm above max_norm is clipped to it; max_norm 0 measures only. The sum has a
// fixed order. Waits for the device.
GradientNorm clip_global_norm(Context& context, const Tensor& gradients, double max_norm,
                              double scale_in = 1);

}  // namespace trafo
