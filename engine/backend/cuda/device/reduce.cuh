// Sums and maxima over a warp and over a block, every thread getting the result. Fixed order: the
// same bits every run.
#pragma once

namespace trafo::cuda {

struct Add {
  static constexpr float kIdentity = 0.0f;
  __device__ __forceinline__ float operator()(float a, float b) const { return a + b; }
};
struct Max {
  static constexpr float kIdentity = -3.402823466e38f;
  __device__ __forceinline__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

template <class Op, int Lanes = 32>
__device__ __forceinline__ float warp_reduce(float x) {
  const Op op;
#pragma unroll
  for (int offset = Lanes / 2; offset > 0; offset /= 2)
    x = op(x, __shfl_xor_sync(0xffffffffu, x, offset));
  return x;
}

// `shared` has one float per warp of the block. Barriers inside: every thread of the block calls
// it.
template <class Op, int Threads>
__device__ __forceinline__ float block_reduce(float x, float* shared) {
  constexpr int kWarps = Threads / 32;
  x = warp_reduce<Op>(x);
  if constexpr (kWarps == 1) return x;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (lane == 0) shared[warp] = x;
  __syncthreads();
  x = lane < kWarps ? shared[lane] : Op::kIdentity;
  x = warp_reduce<Op>(x);
  __syncthreads();
  return x;
}

}  // namespace trafo::cuda
