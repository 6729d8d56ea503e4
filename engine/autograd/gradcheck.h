// Compares analytic gradients with central differences, in float64.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/runtime/context.h"

namespace trafo {

struct GradcheckOptions {
  double eps = 1e-6;   // step of the central difference
  double atol = 1e-5;  // |analytic - numeric| <= atol + rtol |numeric|
  double rtol = 1e-3;
  uint64_t seed = 1;  // of the random upstream gradient
};

struct GradcheckResult {
  bool ok = true;
  int64_t checked = 0;     // derivatives compared
  double worst_error = 0;  // largest |analytic - numeric| - rtol |numeric|
  std::string message;     // which input and element failed first, and both values
};

using GradcheckFn = std::function<std::vector<Tensor>(Context&, const std::vector<Tensor>&)>;

// Compares every derivative of sum_i <u_i, fn(inputs)_i>, u random in [-1, 1], for each float64
// input; other inputs are constants. Inputs are contiguous CPU tensors; they are perturbed in place
// and restored.
GradcheckResult gradcheck(Context& context, const GradcheckFn& fn,
                          const std::vector<Tensor>& inputs, const GradcheckOptions& options = {});

}  // namespace trafo
