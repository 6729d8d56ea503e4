// mma.sync of bfloat16 with sums in float32, on cards from compute capability 8.0 on.
#pragma once

#include <cstdint>

namespace trafo::cuda {

// c [16, 8] += a [16, 16] b [16, 8], shared by the lanes 4 g + q of a warp. A word holds two
// neighbours of the dimension that is summed over: a[0] row g at 2 q, a[1] row g + 8 at 2 q, a[2]
// and a[3] the same at 2 q + 8; b0 and b1 column g at 2 q and 2 q + 8. c[0] and c[1] are row g,
// columns 2 q and 2 q + 1, c[2] and c[3] row g + 8.
__device__ __forceinline__ void mma_bf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                         uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace trafo::cuda
