// Dropout factors of the packs that row kernels move.
#pragma once

#include "engine/backend/cuda/device/philox.cuh"

namespace trafo::cuda {

// Factors of V elements from the first of `words`, the Philox block of `element`, on. V divides 8
// or is 8.
template <int V>
__device__ __forceinline__ void factors_of_words(const DropoutArgs& dropout, const uint4& words,
                                                 int64_t element, float (&factor)[V]) {
  if constexpr (V == 8) {
    // Halves are compared where they are in the word: above a limit whose lower half is all ones.
    const uint32_t limit = dropout.threshold * 65536u - 1;
    const uint32_t word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      factor[2 * j] = word[j] << 16 > limit ? dropout.scale : 0.0f;
      factor[2 * j + 1] = word[j] > limit ? dropout.scale : 0.0f;
    }
  } else {
    const int first = static_cast<int>(element % 8);
#pragma unroll
    for (int j = 0; j < V; ++j) factor[j] = dropout_factor(dropout, words, first + j);
  }
}

// Of an active dropout, from an aligned index on.
template <int V>
__device__ __forceinline__ void dropout_factors(const DropoutArgs& dropout, int64_t element,
                                                float (&factor)[V]) {
  factors_of_words<V>(dropout, philox_block(dropout, static_cast<uint64_t>(element) / 8), element,
                      factor);
}

}  // namespace trafo::cuda
