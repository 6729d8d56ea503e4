// For the kernels of compute capability 9.0 with a producer, beside attention_wgmma.cuh:
// multiplication 128 columns wide.
#pragma once

#include "engine/backend/cuda/device/tensor_map.cuh"
#include "engine/ops/attention/attention_wgmma.cuh"

namespace trafo::cuda {

#ifdef TRAFO_HAS_WGMMA

// multiply_columns, 128 columns wide.
__device__ __forceinline__ void multiply_columns(SumsOf<128>& c, const Quad& a, uint32_t b) {
  asm volatile("{\n.reg .b64 b;\nmov.b64 b, {%68, " TRAFO_DESCRIPTOR_HIGH
               "};\n"
               "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" TRAFO_PLACES_128
               "}, {%64,%65,%66,%67}, b, 1, 1, 1, 1;\n}\n"
               : TRAFO_SUMS_128
               : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "r"(b)
               : "memory");
}
// c = 64 rows of a, from `row`, times the 128 rows of b.
template <int D, int Rows>
__device__ __forceinline__ void multiply_tiles(SumsOf<128>& c, const Panels<D, Rows>& a, int row,
                                               const Panels<D, 128>& b) {
  const uint32_t left = describe(a.base + row * 128), right = describe(b.base);
#pragma unroll
  for (int k = 0; k < D / 16; ++k)
    multiply<false, false>(c, left + k / 4 * (Panels<D, Rows>::kPanelBytes / 16) + k % 4 * 2,
                           right + k / 4 * (Panels<D, 128>::kPanelBytes / 16) + k % 4 * 2, k > 0);
}

// c += a b, where a [64, Rows] is in registers.
template <int D, int Rows>
__device__ __forceinline__ void multiply_add_tile(SumsOf<D>& c, const Quad (&a)[Rows / 16],
                                                  const Panels<D, Rows>& b) {
  // From a panel of 64 columns to the next, in the place of the stride that one panel does not use.
  const uint32_t right =
      D == 64 ? describe(b.base) : b.base >> 4 | (Panels<D, Rows>::kPanelBytes / 16) << 16;
#pragma unroll
  for (int k = 0; k < Rows / 16; ++k) multiply_columns(c, a[k], right + k * (16 * 128 / 16));
}

// Zeros from `row` on, by the threads of a warpgroup; the products see them after
// wgmma_publish and a barrier of these threads.
template <int D, int Rows>
__device__ __forceinline__ void clear_rows(const Panels<D, Rows>& tile, int row, int thread) {
  constexpr int kWords = D / 2;
  for (int at = row * kWords + thread; at < Rows * kWords; at += kWarpgroup) {
    const int word = at % kWords;
    store_shared(tile.base + static_cast<uint32_t>(word / 32) * Panels<D, Rows>::kPanelBytes +
                     static_cast<uint32_t>(at / kWords * 128 + word % 32 * 4),
                 0);
  }
}

#endif  // TRAFO_HAS_WGMMA

}  // namespace trafo::cuda
