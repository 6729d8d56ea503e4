#pragma once

#include <span>

#include "engine/backend/cuda/device_state.h"

namespace trafo::cuda {

// The number of GEMMs at the beginning of those of Backend::grouped_gemm that are pairs, as many as
// one launch takes. A pair reads the same A [m, k] in bfloat16: A B with B [k, r], then A^T D with
// D [m, r], for an r of at most 16, as backward of a low-rank adapter needs them.
size_t thin_pairs(const DeviceState& device, std::span<const GemmParams> gemms);

// Computes them in one pass over each A. Sums have a fixed order.
int32_t thin_products(DeviceState& device, std::span<const GemmParams> pairs);

}  // namespace trafo::cuda
