// Unstructured pruning of a matrix: weights that are exactly zero are pruned, there is no mask.
#pragma once

#include <cstdint>
#include <span>

#include "engine/nn/parameter_store.h"

namespace trafo::nn {

// Elements of `elements` that a sparsity in [0, 1) sets to zero, rounded to the nearest number.
int64_t pruned_count(double sparsity, int64_t elements);

// Sets the `count` values with the lowest scores to zero; of equal scores, the first ones. NaN is
// the highest score. `scores` has as many elements as `values`, and is overwritten. count is at
// least 0 and at most their number. The result depends on nothing else: every rank and every device
// prunes alike.
void zero_lowest(std::span<float> values, std::span<float> scores, int64_t count);
void zero_lowest(std::span<double> values, std::span<double> scores, int64_t count);

// Sets that share of a matrix to zero, the weights of the least magnitude among all of the matrix
// (Han et al., arXiv 1506.02626). Weights that are zero already come first. The master and the
// values that the model computes with are written.
void prune_by_magnitude(Context& context, ParameterStore& parameters, ParamId id, double sparsity);

}  // namespace trafo::nn
