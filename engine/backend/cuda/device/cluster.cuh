// Clusters: blocks that run at once on neighbouring multiprocessors and reach each other's shared
// memory. From compute capability 9.0 on.
#pragma once

#include <cstdint>

namespace trafo::cuda {

// False in code for older targets, where a kernel for clusters has no body and is never launched.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
inline constexpr bool kHasClusters = false;
#else
inline constexpr bool kHasClusters = true;
#endif

__device__ __forceinline__ uint32_t block_in_cluster() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ uint32_t blocks_in_cluster() {
  uint32_t blocks;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
  return blocks;
}

// All threads of all blocks arrive, then wait. Reads and writes before arriving come before those
// that follow the wait, except after arrive_cluster_unordered(), which does not wait for memory.
// Warps may be divided.
__device__ __forceinline__ void arrive_cluster() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}
__device__ __forceinline__ void arrive_cluster_unordered() {
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
}
__device__ __forceinline__ void wait_cluster() {
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}
// The same at once, of whole warps.
__device__ __forceinline__ void sync_cluster() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

// Stores to the place in the shared memory of another block that `here` is in this one.
__device__ __forceinline__ void put_in_block(uint32_t block, float* here, float value) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(here));
  asm volatile(
      "{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %0, %1;\n"
      "st.shared::cluster.f32 [remote], %2;\n}\n" ::"r"(at),
      "r"(block), "f"(value)
      : "memory");
}

}  // namespace trafo::cuda
