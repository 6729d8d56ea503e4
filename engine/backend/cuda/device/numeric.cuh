// Element types on the device: float32 and bfloat16 in memory, float32 in registers; and 16-byte
// loads and stores.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>
#include <type_traits>

#include "engine/core/dtype.h"

namespace trafo::cuda {

using bf16 = __nv_bfloat16;

__device__ __forceinline__ float to_float(float x) {
  return x;
}
__device__ __forceinline__ float to_float(bf16 x) {
  return __bfloat162float(x);
}
template <class T>
__device__ __forceinline__ T from_float(float x);
template <>
__device__ __forceinline__ float from_float<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ bf16 from_float<bf16>(float x) {
  return __float2bfloat16_rn(x);
}

// N elements that move as one access of up to 16 bytes.
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T v[N];
};
template <class T>
inline constexpr int kPackWidth = 16 / sizeof(T);

template <class T, int N>
__device__ __forceinline__ Pack<T, N> load_pack(const T* p) {
  return *reinterpret_cast<const Pack<T, N>*>(p);
}
template <class T, int N>
__device__ __forceinline__ void store_pack(T* p, const Pack<T, N>& pack) {
  *reinterpret_cast<Pack<T, N>*>(p) = pack;
}

// N elements in registers. A whole pack is kept as 32-bit words: two bfloat16 in a register, never
// taken apart before they are used.
template <class T, int N>
using Held = std::conditional_t<sizeof(T) * N == 16, uint4, Pack<T, N>>;

template <class T, int N>
__device__ __forceinline__ Held<T, N> load_held(const T* p) {
  return *reinterpret_cast<const Held<T, N>*>(p);
}

template <class T, int N>
__device__ __forceinline__ void to_floats(const Held<T, N>& held, float (&out)[N]) {
  if constexpr (sizeof(T) * N == 16) {
    const uint32_t words[4] = {held.x, held.y, held.z, held.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if constexpr (sizeof(T) == 2) {
        out[2 * j] = __uint_as_float(words[j] << 16);
        out[2 * j + 1] = __uint_as_float(words[j] & 0xffff0000u);
      } else {
        out[j] = __uint_as_float(words[j]);
      }
    }
  } else {
#pragma unroll
    for (int j = 0; j < N; ++j) out[j] = to_float(held.v[j]);
  }
}

// Calls fn with a value of the element type; false for a dtype kernels do not have.
template <class Fn>
bool with_device_type(DType dtype, Fn&& fn) {
  if (dtype == DType::f32) {
    fn(float{});
    return true;
  }
  if (dtype == DType::bf16) {
    fn(bf16{});
    return true;
  }
  return false;
}

inline bool aligned16(const void* p) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0;
}

}  // namespace trafo::cuda
