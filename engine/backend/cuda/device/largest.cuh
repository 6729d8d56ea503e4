// The largest magnitude of bfloat16 and float32 values, as the bits of a float32 without its sign:
// they are ordered like the magnitudes, with infinity and NaN at the end. Maxima do not depend on
// the order of the values.
#pragma once

#include <cstdint>
#include <cstring>

#include "engine/backend/cuda/device/numeric.cuh"

namespace trafo::cuda {

// Of the values that a thread has seen.
template <class T>
struct Largest {
  uint32_t top = 0;  // bfloat16: two maxima, as two values are in a word

  __device__ __forceinline__ void see_word(uint32_t word) {
    if constexpr (sizeof(T) == 2)
      top = __vmaxu2(top, word & 0x7fff7fffu);
    else
      top = max(top, word & 0x7fffffffu);
  }
  __device__ __forceinline__ void see(const uint4& held) {
    see_word(held.x);
    see_word(held.y);
    see_word(held.z);
    see_word(held.w);
  }
  template <int N>
  __device__ __forceinline__ void see(const Pack<T, N>& held) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      uint32_t word = 0;
      memcpy(&word, &held.v[j], sizeof(T));
      see_word(word);
    }
  }
  __device__ __forceinline__ uint32_t bits() const {
    return sizeof(T) == 2 ? max(top << 16, top & 0xffff0000u) : top;
  }
};

// The largest of a block, in all of its threads. One barrier.
template <int Threads>
__device__ __forceinline__ uint32_t block_largest(uint32_t bits, uint32_t (&shared)[Threads / 32]) {
  bits = __reduce_max_sync(0xffffffffu, bits);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = bits;
  __syncthreads();
#pragma unroll
  for (int warp = 0; warp < Threads / 32; ++warp) bits = max(bits, shared[warp]);
  return bits;
}

// Raises what is at `place` to the largest of the block, all of whose threads call it once.
template <int Threads, class T>
__device__ __forceinline__ void leave_largest(const Largest<T>& seen, uint32_t* place) {
  __shared__ uint32_t shared[Threads / 32];
  const uint32_t bits = block_largest<Threads>(seen.bits(), shared);
  if (threadIdx.x == 0) atomicMax(place, bits);
}

// The same for a kernel that has no register for what its threads see over many rows: a warp's
// largest, in shared memory that only its first lane uses. All threads of the warp call it.
struct WarpLargest {
  uint32_t* memory;

  __device__ __forceinline__ void begin() const {
    if (threadIdx.x % 32 == 0) *memory = 0;
  }
  template <class T>
  __device__ __forceinline__ void see(const Largest<T>& seen) const {
    const uint32_t bits = __reduce_max_sync(0xffffffffu, seen.bits());
    if (threadIdx.x % 32 == 0) *memory = max(*memory, bits);
  }
  __device__ __forceinline__ void leave(uint32_t* place) const {
    if (threadIdx.x % 32 == 0) atomicMax(place, *memory);
  }
};

}  // namespace trafo::cuda
