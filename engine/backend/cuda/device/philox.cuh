// Dropout masks on the device: bit for bit dropout_keeps() of engine/core/numeric/philox.h, eight
// elements a Philox block.
#pragma once

#include <cstdint>

#include "engine/backend/cuda/device_state.h"
#include "engine/core/numeric/philox.h"

namespace trafo::cuda {

// The parts of a Dropout that a kernel needs: plain numbers, computed once on the host.
struct DropoutArgs {
  uint64_t seed;
  uint32_t step, id, threshold;
  float scale;
  const uint32_t* first_step;  // what `step` counts from, in device memory; null: from 0
  static DropoutArgs of(const DeviceState& device, const Dropout& d) {
    return {
        d.seed, d.step, d.id, d.threshold(), static_cast<float>(d.scale()), device.dropout_step};
  }
};

__device__ __forceinline__ uint4 philox_block(const DropoutArgs& d, uint64_t block) {
  uint32_t c0 = static_cast<uint32_t>(block), c1 = static_cast<uint32_t>(block >> 32);
  uint32_t c2 = d.first_step ? d.step + __ldg(d.first_step) : d.step, c3 = d.id;
  uint32_t k0 = static_cast<uint32_t>(d.seed), k1 = static_cast<uint32_t>(d.seed >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint32_t h0 = __umulhi(0xD2511F53u, c0), l0 = 0xD2511F53u * c0;
    const uint32_t h1 = __umulhi(0xCD9E8D57u, c2), l1 = 0xCD9E8D57u * c2;
    c0 = h1 ^ c1 ^ k0;
    c1 = l1;
    c2 = h0 ^ c3 ^ k1;
    c3 = l0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return make_uint4(c0, c1, c2, c3);
}

// Element `half` (0..7) of a block: scale where kept, 0 where dropped.
__device__ __forceinline__ float dropout_factor(const DropoutArgs& d, const uint4& block,
                                                int half) {
  const uint32_t word = half < 2 ? block.x : half < 4 ? block.y : half < 6 ? block.z : block.w;
  const uint32_t bits = (half & 1) ? word >> 16 : word & 0xffffu;
  return bits >= d.threshold ? d.scale : 0.0f;
}

// One element on its own; runs of eight aligned elements should share a block.
__device__ __forceinline__ float dropout_factor_at(const DropoutArgs& d, uint64_t i) {
  return dropout_factor(d, philox_block(d, i / 8), static_cast<int>(i % 8));
}

}  // namespace trafo::cuda
