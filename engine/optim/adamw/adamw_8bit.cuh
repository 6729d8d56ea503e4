// The kernel of AdamW with moments in 8 bits (state_code.h).
#pragma once

#include "engine/optim/adamw/adamw_element.cuh"
#include "engine/quant/state_code.h"

namespace trafo {
namespace cuda {
namespace {

// A warp holds a block of them in registers, from
// decoding to coding. Lane l has elements 4 l .. 4 l + 3 of either half, so that every access of a
// warp is one range. kAligned: parameters and gradients can be moved by fours.
constexpr int kHalf = static_cast<int>(state_code::kBlock) / 2;
static_assert(kHalf == 4 * 32);

__device__ __forceinline__ uint8_t byte_of(uint32_t codes, int j) {
  return static_cast<uint8_t>(codes >> (8 * j));
}

// The low bytes of four words.
__device__ __forceinline__ uint32_t four_bytes(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  return __byte_perm(__byte_perm(a, b, 0x0040), __byte_perm(c, d, 0x0040), 0x5410);
}

// The largest of numbers that are not negative: their bits are in the same order.
__device__ __forceinline__ float warp_largest(float x) {
  return __uint_as_float(__reduce_max_sync(0xffffffffu, __float_as_uint(x)));
}

template <bool kAligned, bool kGrouped>
__global__ void __launch_bounds__(kThreads)
    adamw_8bit_kernel(UpdateArgs<AdamWArgs> given,
                      const UpdateArgs<AdamWArgs>* __restrict__ decided, Groups groups,
                      int64_t count, float* __restrict__ param, const float* __restrict__ grad,
                      uint32_t* __restrict__ m, uint32_t* __restrict__ v,
                      float* __restrict__ m_scale, float* __restrict__ v_scale, int64_t first,
                      bf16* __restrict__ rounded, float* __restrict__ ema) {
  const int64_t block = static_cast<int64_t>(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32;
  const int64_t begin = block * state_code::kBlock;
  if (begin >= count) return;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const bool whole = kAligned && begin + state_code::kBlock <= count;

  Pack<float, 4> g[2], value[2], momentum[2], variance[2];
  uint32_t m_codes[2], v_codes[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int64_t i = begin + h * kHalf + lane * 4;
    m_codes[h] = m[i / 4];
    v_codes[h] = v[i / 4];
    if (whole) {
      g[h] = load_pack<float, 4>(grad + i);
      value[h] = load_pack<float, 4>(param + i);
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const bool inside = i + j < count;
        g[h].v[j] = inside ? grad[i + j] : 0.0f;
        value[h].v[j] = inside ? param[i + j] : 0.0f;
      }
    }
  }
  const float old_m_scale = m_scale[block], old_v_scale = v_scale[block];
  const UpdateArgs<AdamWArgs> a = decided ? *decided : given;
  if (!a.applied) return;

  float largest_m = 0, largest_v = 0;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    ElementRates rates = a.rates;
    if constexpr (kGrouped) {
      const int64_t i = begin + h * kHalf + lane * 4;
      if (i < count) rates = groups.at(i);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float& mj = momentum[h].v[j];
      float& vj = variance[h].v[j];
      mj = state_code::decode_first(byte_of(m_codes[h], j), old_m_scale);
      vj = state_code::decode_second(byte_of(v_codes[h], j), old_v_scale);
      float moments[2] = {mj, vj};
      AdamWElement::update(a.rule, rates, g[h].v[j] * a.grad_scale, moments, value[h].v[j]);
      mj = moments[0];
      vj = moments[1];
      largest_m = fmaxf(largest_m, fabsf(mj));
      largest_v = fmaxf(largest_v, vj);
    }
  }
  const float new_m_scale =
      state_code::scale_of(warp_largest(largest_m), state_code::kFirstLargest);
  const float new_v_scale =
      state_code::scale_of(warp_largest(largest_v), state_code::kSecondLargest);
  const float m_inverse = state_code::inverse_of(new_m_scale);
  const float v_inverse = state_code::inverse_of(new_v_scale);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int64_t i = begin + h * kHalf + lane * 4;
    uint32_t m_place[4], v_place[4];
#pragma unroll
    for (int j = 0; j < 4; j += 2) {
      const uint32_t random =
          state_code::random_bits(static_cast<uint32_t>((first + i + j) / 2), a.step);
#pragma unroll
      for (int k = j; k < j + 2; ++k) {
        const uint32_t offset = state_code::rounding_offset(random, static_cast<uint32_t>(k));
        m_place[k] =
            state_code::first_place(__float_as_uint(fabsf(momentum[h].v[k]) * m_inverse), offset);
        v_place[k] = state_code::encode_second(variance[h].v[k], v_inverse, offset);
      }
    }
    // The signs are set in all four at once.
    const uint32_t signs = four_bytes(
        __float_as_uint(momentum[h].v[0]) >> 24, __float_as_uint(momentum[h].v[1]) >> 24,
        __float_as_uint(momentum[h].v[2]) >> 24, __float_as_uint(momentum[h].v[3]) >> 24);
    const uint32_t m_out =
        four_bytes(m_place[0], m_place[1], m_place[2], m_place[3]) | (signs & 0x80808080u);
    const uint32_t v_out = four_bytes(v_place[0], v_place[1], v_place[2], v_place[3]);
    m[i / 4] = m_out;
    v[i / 4] = v_out;
    if (whole) {
      store_pack(param + i, value[h]);
      post_update<4>(a, value[h], rounded, ema, i);
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (i + j >= count) continue;
        param[i + j] = value[h].v[j];
        if (ema) ema[i + j] = a.new_ema(ema[i + j], value[h].v[j]);
        if (rounded) rounded[i + j] = from_float<bf16>(value[h].v[j]);
      }
    }
  }
  if (lane == 0) {
    m_scale[block] = new_m_scale;
    v_scale[block] = new_v_scale;
  }
}

template <bool kGrouped>
void launch_adamw_8bit(const Launch<AdamWArgs>& launch) {
  const UpdateState& s = launch.s;
  const auto kernel =
      launch.aligned() ? adamw_8bit_kernel<true, kGrouped> : adamw_8bit_kernel<false, kGrouped>;
  kernel<<<launch.grid(kThreads / 32 * state_code::kBlock), kThreads, 0, launch.device.stream>>>(
      launch.given, launch.decided, launch.groups, s.count, launch.param(), launch.grad(),
      static_cast<uint32_t*>(s.states[0]), static_cast<uint32_t*>(s.states[2]),
      static_cast<float*>(s.states[1]), static_cast<float*>(s.states[3]), s.first, launch.rounded(),
      launch.ema());
}

}  // namespace
}  // namespace cuda
}  // namespace trafo
