// What cross_entropy and linear_cross_entropy share: checked labels and weights, and sums of
// per-token losses.
#pragma once

#include "engine/ops/cross_entropy/cross_entropy.h"

namespace trafo {

struct LossInputs {
  Tensor labels;      // [T], contiguous
  Tensor weights;     // [T], contiguous, without history, or undefined
  double weight_sum;  // over labels that are not ignored
  // What the sum of the weighted losses is multiplied with: 1, or 1 / weight_sum for a mean (0 for
  // a mean over nothing).
  double scale;
};

// Throws what cross_entropy.h promises, with `op` as the origin.
LossInputs check_loss_inputs(Context& context, const char* op, int64_t rows, int64_t classes,
                             DType dtype, const Tensor& labels,
                             const ops::CrossEntropyOptions& options);

// The sum of a float32 or float64 [T] tensor, in token order and in double.
double sum_in_order(const Context& context, const Tensor& rows);

}  // namespace trafo
