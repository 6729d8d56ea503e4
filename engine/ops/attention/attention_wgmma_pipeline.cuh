// For the kernels of compute capability 9.0 with a producer, beside attention_wgmma.cuh: tiles
// loaded by TMA, barriers in shared memory, multiplication 128 columns wide.
#pragma once

#include "engine/backend/cuda/device/tensor_map.cuh"
#include "engine/ops/attention/attention_wgmma.cuh"

namespace trafo::cuda {

// 64 rows of float32 sums of a warpgroup.
template <int Columns>
using SumsOf = float[Columns / 8][4];

#ifdef TRAFO_HAS_WGMMA

// Barriers of 8 bytes in shared memory ("mbarrier" in the PTX ISA) at the address `at`. A phase
// ends with the last of its arrivals, and of the bytes announced.
__device__ __forceinline__ void init_barrier(uint32_t at, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(arrivals) : "memory");
}
// After the barriers were initialised, before a barrier of the block: the copy engine sees them.
__device__ __forceinline__ void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void arrive(uint32_t at) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
}
__device__ __forceinline__ void arrive_expecting(uint32_t at, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes)
               : "memory");
}
// Until the phase of this parity has ended.
__device__ __forceinline__ void wait_barrier(uint32_t at, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "again:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n}\n" ::"r"(at),
      "r"(parity)
      : "memory");
}
// Starts bringing a box, announced to the barrier before: `column` counts inside of the head.
__device__ __forceinline__ void load_box(uint32_t to, const CUtensorMap& map, uint32_t barrier,
                                         int column, int head, int row) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, "
      "%4, %5}], [%2];" ::"r"(to),
      "l"(&map), "r"(barrier), "r"(column), "r"(head), "r"(row)
      : "memory");
}

// Arrives when this thread's copies into shared memory have.
__device__ __forceinline__ void arrive_with_copies(uint32_t at) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(at) : "memory");
}

// Barriers of threads, by number (0 is __syncthreads).
__device__ __forceinline__ void sync_threads(int number, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
__device__ __forceinline__ void arrive_threads(int number, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

// Registers of each thread of the warpgroup from here on.
template <int Count>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Count));
}
template <int Count>
__device__ __forceinline__ void leave_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Count));
}

#define TRAFO_SUMS_ROW(n) "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])
#define TRAFO_SUMS                                                                               \
  TRAFO_SUMS_ROW(0), TRAFO_SUMS_ROW(1), TRAFO_SUMS_ROW(2), TRAFO_SUMS_ROW(3), TRAFO_SUMS_ROW(4), \
      TRAFO_SUMS_ROW(5), TRAFO_SUMS_ROW(6), TRAFO_SUMS_ROW(7), TRAFO_SUMS_ROW(8),                \
      TRAFO_SUMS_ROW(9), TRAFO_SUMS_ROW(10), TRAFO_SUMS_ROW(11), TRAFO_SUMS_ROW(12),             \
      TRAFO_SUMS_ROW(13), TRAFO_SUMS_ROW(14), TRAFO_SUMS_ROW(15)
#define TRAFO_SUMS_PLACES                                                                        \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,"  \
  "%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47," \
  "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}"
#define TRAFO_DESCRIPTOR_HIGH "0x40000040"

// multiply_rows and multiply_columns, 128 columns wide.
__device__ __forceinline__ void multiply_rows(SumsOf<128>& c, uint32_t a, uint32_t b, bool add) {
  asm volatile(
      "{\n.reg .pred p;\n.reg .b64 a, b;\nsetp.ne.b32 p, %66, 0;\n"
      "mov.b64 a, {%64, " TRAFO_DESCRIPTOR_HIGH "};\nmov.b64 b, {%65, " TRAFO_DESCRIPTOR_HIGH
      "};\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " TRAFO_SUMS_PLACES
      ", a, b, p, 1, 1, 0, 0;\n}\n"
      : TRAFO_SUMS
      : "r"(a), "r"(b), "r"(static_cast<int>(add))
      : "memory");
}
__device__ __forceinline__ void multiply_columns(SumsOf<128>& c, const Quad& a, uint32_t b) {
  asm volatile("{\n.reg .b64 b;\nmov.b64 b, {%68, " TRAFO_DESCRIPTOR_HIGH
               "};\n"
               "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " TRAFO_SUMS_PLACES
               ", {%64,%65,%66,%67}, b, 1, 1, 1, 1;\n}\n"
               : TRAFO_SUMS
               : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "r"(b)
               : "memory");
}
__device__ __forceinline__ void pin(SumsOf<128>& c) {
#pragma unroll
  for (int n = 0; n < 16; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) asm volatile("" : "+f"(c[n][e])::"memory");
}

#undef TRAFO_DESCRIPTOR_HIGH
#undef TRAFO_SUMS_ROW
#undef TRAFO_SUMS
#undef TRAFO_SUMS_PLACES

// c = 64 rows of a, from `row`, times the 128 rows of b.
template <int D, int Rows>
__device__ __forceinline__ void multiply_tiles(SumsOf<128>& c, const Panels<D, Rows>& a, int row,
                                               const Panels<D, 128>& b) {
  const uint32_t left = describe(a.base + row * 128), right = describe(b.base);
#pragma unroll
  for (int k = 0; k < D / 16; ++k)
    multiply_rows(c, left + k / 4 * (Panels<D, Rows>::kPanelBytes / 16) + k % 4 * 2,
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

// The same number in all lanes, known to the compiler as such.
__device__ __forceinline__ int uniform(int x) {
  return __shfl_sync(0xffffffffu, x, 0);
}

#endif  // TRAFO_HAS_WGMMA

}  // namespace trafo::cuda
