#pragma once

#include <span>

#include "engine/backend/cuda/device_state.h"

namespace trafo::cuda {

// Two GEMMs of Backend::grouped_gemm that read the same A [m, k] in bfloat16: A B with B [k, r],
// and A^T B with B [m, r], for an r of at most 16, as backward of a low-rank adapter needs them.
// How many of the first GEMMs are such pairs, in this order, and so many that one launch takes
// them.
size_t thin_pairs(const DeviceState& device, std::span<const GemmParams> gemms);

// Computes them in one pass over each A. Sums have a fixed order.
int32_t thin_products(DeviceState& device, std::span<const GemmParams> pairs);

}  // namespace trafo::cuda
