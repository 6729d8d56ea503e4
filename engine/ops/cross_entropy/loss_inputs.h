// Common parts of cross_entropy and linear_cross_entropy: checked labels and weights, and sums of
// per-token losses.
#pragma once

#include "engine/ops/cross_entropy/cross_entropy.h"

namespace trafo {

struct LossInputs {
  Tensor labels;   // [T], contiguous
  Tensor weights;  // [T], contiguous, without history, or undefined
  // Factor of the sum of the weighted losses: options.scale, for a mean divided by the sum of the
  // weights (0 for a mean over nothing).
  double scale;
};

// Throws what cross_entropy.h promises, with `op` as the origin.
LossInputs check_loss_inputs(Context& context, const char* op, int64_t rows, int64_t classes,
                             DType dtype, const Tensor& labels,
                             const ops::CrossEntropyOptions& options);

namespace ops {

// The class_weights of cross_entropy.h, computed by cross_entropy without them.
CrossEntropyOutput class_weighted_cross_entropy(Context& context, const Tensor& logits,
                                                const Tensor& labels,
                                                const CrossEntropyOptions& options);
// For a caller that has no logits, and so no smoothing: options without class weights, whose row
// weights count w[label]. Throws as check_loss_inputs does.
CrossEntropyOptions with_row_weights(Context& context, const char* op, int64_t classes, DType dtype,
                                     const Tensor& labels, const CrossEntropyOptions& options);

}  // namespace ops

// scale times the sum of a float32 or float64 [T] tensor, as [1]: on the CPU in token order and in
// double, elsewhere on the device.
Tensor scaled_sum(Context& context, const char* op, const Tensor& rows, double scale);

}  // namespace trafo
