// Instructions of compute capability 9.0a for kernels with a producer: multiplication of a
// warpgroup (four warps) on the tensor cores with operands in shared memory, barriers there, the
// copy engine (TMA), and who has how many registers.
//
// Lane 4 g + t of warp w holds, of the 64 x N sums of a warpgroup, rows 16 w + g and
// 16 w + g + 8, columns 8 n + 2 t and the next: c[n][0], c[n][1] and c[n][2], c[n][3].
#pragma once

#include <cuda.h>

#include <cstdint>

#include "engine/backend/cuda/device/cluster.cuh"

// The instructions exist in machine code for 9.0a only. Other targets get kernels without a body,
// which are never launched.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define TRAFO_HAS_WGMMA 1
#endif

namespace trafo::cuda {

inline constexpr int kWarpgroup = 128;

// 64 rows of float32 sums of a warpgroup.
template <int Columns>
using SumsOf = float[Columns / 8][4];

#ifdef TRAFO_HAS_WGMMA

// Description of a tile for the tensor cores (PTX ISA, "Matrix descriptor"), in units of 16 bytes.
// A tile consists of panels of 64 elements, 128 bytes, a line; their 16-byte pieces are swizzled
// and a panel begins at a multiple of 1024 bytes. The high word, the same for all, has the stride
// from eight lines to the next eight, 1024 bytes, and 128-byte swizzling. The low word has the
// address and the stride from a panel to the next, which matters only where one operand spans
// several panels: of an operand stored transposed (its lines run along m or n), more than 64 wide.
// Only the low word is passed on, so that another place is one addition away.
#define TRAFO_DESCRIPTOR_HIGH "0x40000040"
__device__ __forceinline__ uint32_t describe(uint32_t address, uint32_t panel_bytes = 16) {
  return address >> 4 | panel_bytes >> 4 << 16;
}

// An address in the shared memory of this block without the block's rank in its cluster, which
// descriptors have no place for.
__device__ __forceinline__ uint32_t in_block(uint32_t address) {
  return address & 0x3ffff;
}

// Shared memory that this thread's copies and stores have written may be read by products and the
// copy engine after a barrier.
__device__ __forceinline__ void wgmma_publish() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// Before the first product after registers of its operands were written.
__device__ __forceinline__ void wgmma_begin() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// All but the newest `Open` groups are done.
template <int Open>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Open) : "memory");
}

// Keeps the compiler from moving accesses of sums across the place of the call.
template <int N>
__device__ __forceinline__ void pin(float (&c)[N][4]) {
#pragma unroll
  for (int n = 0; n < N; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) asm volatile("" : "+f"(c[n][e])::"memory");
}

#define TRAFO_SUMS_ROW(n) "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])
#define TRAFO_SUMS_8(n)                                                                   \
  TRAFO_SUMS_ROW(n), TRAFO_SUMS_ROW(n + 1), TRAFO_SUMS_ROW(n + 2), TRAFO_SUMS_ROW(n + 3), \
      TRAFO_SUMS_ROW(n + 4), TRAFO_SUMS_ROW(n + 5), TRAFO_SUMS_ROW(n + 6), TRAFO_SUMS_ROW(n + 7)
#define TRAFO_SUMS_64 TRAFO_SUMS_8(0)
#define TRAFO_SUMS_128 TRAFO_SUMS_64, TRAFO_SUMS_8(8)
#define TRAFO_SUMS_192 TRAFO_SUMS_128, TRAFO_SUMS_8(16)
#define TRAFO_SUMS_256 TRAFO_SUMS_192, TRAFO_SUMS_8(24)
#define TRAFO_PLACES_64                                                                    \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23," \
  "%24,%25,%26,%27,%28,%29,%30,%31"
#define TRAFO_PLACES_128                                                                      \
  TRAFO_PLACES_64                                                                             \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53," \
  "%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define TRAFO_PLACES_192                                                                      \
  TRAFO_PLACES_128                                                                            \
  ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85," \
  "%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define TRAFO_PLACES_256                                                                         \
  TRAFO_PLACES_192                                                                               \
  ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114," \
  "%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"

// c (+)= a b of 16 columns of `a` and 16 rows of `b` at their descriptors; without `add` c is
// overwritten. Lines of a panel of `a` are its rows, or its columns if it is stored transposed;
// lines of `b` are its columns, or its rows if BRows.
#define TRAFO_MULTIPLY(columns, first, second, third, fourth, fifth)                               \
  template <bool AColumns, bool BRows>                                                             \
  __device__ __forceinline__ void multiply(SumsOf<columns>& c, uint32_t a, uint32_t b, bool add) { \
    asm volatile("{\n.reg .pred p;\n.reg .b64 a, b;\nsetp.ne.b32 p, %" third                       \
                 ", 0;\n"                                                                          \
                 "mov.b64 a, {%" first ", " TRAFO_DESCRIPTOR_HIGH "};\nmov.b64 b, {%" second       \
                 ", " TRAFO_DESCRIPTOR_HIGH                                                        \
                 "};\n"                                                                            \
                 "wgmma.mma_async.sync.aligned.m64n" #columns                                      \
                 "k16.f32.bf16.bf16 {" TRAFO_PLACES_##columns "}, a, b, p, 1, 1, %" fourth         \
                                                              ", %" fifth ";\n}\n"                 \
                 : TRAFO_SUMS_##columns                                                            \
                 : "r"(a), "r"(b), "r"(static_cast<int>(add)), "n"(static_cast<int>(AColumns)),    \
                   "n"(static_cast<int>(BRows))                                                    \
                 : "memory");                                                                      \
  }
TRAFO_MULTIPLY(64, "32", "33", "34", "35", "36")
TRAFO_MULTIPLY(128, "64", "65", "66", "67", "68")
TRAFO_MULTIPLY(192, "96", "97", "98", "99", "100")
TRAFO_MULTIPLY(256, "128", "129", "130", "131", "132")
#undef TRAFO_MULTIPLY

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
// The same into the blocks of the cluster in `blocks`, a bit each: to the same places in all.
__device__ __forceinline__ void load_box_to(uint16_t blocks, uint32_t to, const CUtensorMap& map,
                                            uint32_t barrier, int column, int head, int row) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(to),
      "l"(&map), "r"(barrier), "r"(column), "r"(head), "r"(row), "h"(blocks)
      : "memory");
}
// Starts writing a box from shared memory, as part of the thread's next group of writes.
__device__ __forceinline__ void store_box(const CUtensorMap& map, uint32_t from, int column,
                                          int head, int row) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(&map),
      "r"(from), "r"(column), "r"(head), "r"(row)
      : "memory");
}
__device__ __forceinline__ void commit_writes() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// The shared memory of all but the thread's newest `Open` groups of writes is free again.
template <int Open>
__device__ __forceinline__ void wait_writes_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Open) : "memory");
}
// All writes of the thread have arrived.
__device__ __forceinline__ void wait_writes() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// Arrives when this thread's copies into shared memory have.
__device__ __forceinline__ void arrive_with_copies(uint32_t at) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(at) : "memory");
}

// Arrives at the barrier at the place `at` of a block of the cluster. Earlier writes of this thread
// are published to its own block only: a release for the cluster would wait for all its writes.
__device__ __forceinline__ void arrive_in(uint32_t block, uint32_t at) {
  asm volatile(
      "{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}\n" ::"r"(at),
      "r"(block)
      : "memory");
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

// The same number in all lanes, known to the compiler as such.
__device__ __forceinline__ int uniform(int x) {
  return __shfl_sync(0xffffffffu, x, 0);
}

#endif  // TRAFO_HAS_WGMMA

}  // namespace trafo::cuda
