// Sums and maxima over a warp and over a block, every thread getting the result. Fixed order: the
// same bits every run.
#pragma once

#include <cstdint>

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

// A block reduces kPartColumns neighbouring columns over all parts of an array: a thread has one
// column and every kPartLanes-th part.
inline constexpr int kPartColumns = 8, kPartLanes = 32, kPartThreads = kPartColumns * kPartLanes;

// `p`: the column threadIdx.x % kPartColumns in part 0; `there`: whether the array has it. `stride`
// from part to part. Threads below kPartColumns get their column's result. One barrier.
template <class Op>
__device__ __forceinline__ float reduce_parts(const float* p, bool there, int64_t parts,
                                              int64_t stride) {
  // Loads of a thread in flight: predicated, as a loop over the rest would wait for each.
  constexpr int kLoads = 16;
  constexpr int kWarps = kPartThreads / 32;
  __shared__ float shared[kWarps][kPartColumns];
  const Op op;
  float result = Op::kIdentity;
  if (there) {
    for (int64_t first = threadIdx.x / kPartColumns; first < parts; first += kLoads * kPartLanes) {
      float x[kLoads];
#pragma unroll
      for (int u = 0; u < kLoads; ++u) {
        const int64_t part = first + u * kPartLanes;
        x[u] = part < parts ? p[part * stride] : Op::kIdentity;
      }
#pragma unroll
      for (int u = 0; u < kLoads; ++u) result = op(result, x[u]);
    }
  }
#pragma unroll
  for (int offset = kPartColumns; offset < 32; offset *= 2)
    result = op(result, __shfl_xor_sync(0xffffffffu, result, offset));
  const int lane = threadIdx.x % 32;
  if (lane < kPartColumns) shared[threadIdx.x / 32][lane] = result;
  __syncthreads();
  if (threadIdx.x < kPartColumns) {
    result = shared[0][lane];
#pragma unroll
    for (int warp = 1; warp < kWarps; ++warp) result = op(result, shared[warp][lane]);
  }
  return result;
}

}  // namespace trafo::cuda
