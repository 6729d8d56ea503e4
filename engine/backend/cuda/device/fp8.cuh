// float32 to FP8 as float_to_fp8 (engine/core/numeric/fp8.h) does it. Cards from 8.9 on have
// instructions.
#pragma once

#include <cuda_fp8.h>

#include "engine/core/numeric/fp8.h"

namespace trafo::cuda {

template <Fp8Format kFormat>
inline constexpr __nv_fp8_interpretation_t kFp8Type =
    kFormat == Fp8Format::e4m3 ? __NV_E4M3 : __NV_E5M2;

template <Fp8Format kFormat>
__device__ __forceinline__ uint8_t fp8_of(float x) {
  return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, kFp8Type<kFormat>);
}

// Eight neighbours times `scale`, the first one in the lowest byte.
template <Fp8Format kFormat>
__device__ __forceinline__ uint2 fp8_of_8(const float (&v)[8], float scale) {
  uint32_t pairs[4];
#pragma unroll
  for (int j = 0; j < 4; ++j)
    pairs[j] = __nv_cvt_float2_to_fp8x2({v[2 * j] * scale, v[2 * j + 1] * scale}, __NV_SATFINITE,
                                        kFp8Type<kFormat>);
  return {pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16};
}

}  // namespace trafo::cuda
