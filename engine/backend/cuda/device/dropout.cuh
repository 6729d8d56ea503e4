// Dropout factors of the packs that row kernels move.
#pragma once

#include "engine/backend/cuda/device/philox.cuh"

namespace trafo::cuda {

// Factors of V elements from an aligned index on; V divides 8 or is 8.
template <int V>
__device__ __forceinline__ void dropout_factors(const DropoutArgs& dropout, int64_t element,
                                                float (&factor)[V]) {
  const uint4 block = philox_block(dropout, static_cast<uint64_t>(element) / 8);
  const int first = V == 8 ? 0 : static_cast<int>(element % 8);
#pragma unroll
  for (int j = 0; j < V; ++j) factor[j] = dropout_factor(dropout, block, first + j);
}

}  // namespace trafo::cuda
