// C [m, n] += A [m, k] B for a small k. A warp has 64 columns and the rows of one block: it holds B
// of its columns in registers and goes down the rows, 16 at a time. Floor: 4 bytes an element of C.
//
// The columns of an mma are not neighbours: column 2 q + e of tile t of a block of 32 is the
// block's column 8 q + 2 t + e. So a lane has eight neighbours of a row of C, 16 bytes.
#include <algorithm>

#include "engine/backend/cuda/device/mma.cuh"
#include "engine/backend/cuda/device/numeric.cuh"
#include "engine/backend/cuda/small_gemms.h"

namespace trafo::cuda {
namespace {

constexpr int kThreads = 256, kWarpsAcross = 4, kWarpsDown = 2;
constexpr int kBlocks = 2, kTiles = 4;  // of 32 columns, in a block
constexpr int kWarpColumns = 32 * kBlocks, kColumns = kWarpsAcross * kWarpColumns;
constexpr int kSlabs = 4, kWarpRows = 16 * kSlabs, kRows = kWarpsDown * kWarpRows;

struct RankUpdate {
  const bf16 *a, *b;
  bf16* c;
  int64_t m, n, lda, ldb, ldc, batch, stride_a, stride_b, stride_c;
  int64_t column_blocks;
  int k;
};

__device__ __forceinline__ uint32_t bits(bf16 x) {
  return __bfloat16_as_ushort(x);
}

// at[0] and at[step] in one word, the first one low; zeros from `count` on.
__device__ __forceinline__ uint32_t pair(const bf16* at, int64_t step, int count) {
  return (count > 0 ? bits(at[0]) : 0) | (count > 1 ? bits(at[step]) << 16 : 0);
}

// kAligned: rows of A are read in words of two elements, rows of C in 16 bytes.
template <bool kAligned>
__device__ __forceinline__ uint32_t pair_of_row(const bf16* at, int count) {
  if constexpr (kAligned)
    return count > 0 ? *reinterpret_cast<const uint32_t*>(at) : 0;
  else
    return pair(at, 1, count);
}

template <bool kAligned>
__device__ __forceinline__ uint4 load_eight(const bf16* at, int count) {
  uint4 eight{};
  if constexpr (kAligned) {
    if (count > 0) eight = *reinterpret_cast<const uint4*>(at);
  } else {
    uint32_t words[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) words[j] = pair(at + 2 * j, 1, count - 2 * j);
    eight = {words[0], words[1], words[2], words[3]};
  }
  return eight;
}

template <bool kAligned>
__device__ __forceinline__ void store_eight(bf16* at, int count, const float (&values)[8]) {
  if constexpr (kAligned) {
    uint32_t words[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const __nv_bfloat162 two = __floats2bfloat162_rn(values[2 * j], values[2 * j + 1]);
      words[j] = *reinterpret_cast<const uint32_t*>(&two);
    }
    // As an intrinsic: the compiler took an assignment apart into four stores.
    if (count > 0)
      __stwb(reinterpret_cast<uint4*>(at), uint4{words[0], words[1], words[2], words[3]});
  } else {
#pragma unroll
    for (int j = 0; j < 8; ++j)
      if (j < count) at[j] = __float2bfloat16_rn(values[j]);
  }
}

// Of rows row and row + 8, eight columns in each block.
struct OldRows {
  uint4 eight[2][kBlocks];
};

// What a lane has: rows g and g + 8 of the 16 at hand.
template <int kSteps, bool kAligned>
struct Rows {
  const bf16* a;                // of row g, column 2 q
  bf16* c;                      // of row g, the lane's first column
  int left;                     // rows of C from row g on
  int columns[kBlocks], depth;  // of C and of A, from the lane's first one on
  int64_t lda, ldc;

  __device__ OldRows load(int rows_below) const {
    OldRows old;
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int block = 0; block < kBlocks; ++block)
        old.eight[half][block] =
            load_eight<kAligned>(c + (rows_below + 8 * half) * ldc + 32 * block,
                                 left > rows_below + 8 * half ? columns[block] : 0);
    return old;
  }
  __device__ void add(const uint32_t (&b)[kSteps][kBlocks * kTiles][2], const OldRows& old) const {
    uint32_t rows_of_a[kSteps][4];
#pragma unroll
    for (int s = 0; s < kSteps; ++s)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int place = 16 * s + j / 2 * 8;
        rows_of_a[s][j] = pair_of_row<kAligned>(a + j % 2 * 8 * lda + place,
                                                left > j % 2 * 8 ? depth - place : 0);
      }
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      float sums[kTiles][4] = {};
#pragma unroll
      for (int s = 0; s < kSteps; ++s)
#pragma unroll
        for (int t = 0; t < kTiles; ++t)
          mma_bf16(sums[t], rows_of_a[s], b[s][block * kTiles + t][0], b[s][block * kTiles + t][1]);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float values[8];
        to_floats<bf16, 8>(old.eight[half][block], values);
#pragma unroll
        for (int j = 0; j < 8; ++j) values[j] += sums[j / 2][2 * half + j % 2];
        store_eight<kAligned>(c + 8 * half * ldc + 32 * block, left > 8 * half ? columns[block] : 0,
                              values);
      }
    }
  }
  __device__ void go_down() {
    a += 16 * lda;
    c += 16 * ldc;
    left -= 16;
  }
};

template <int kSteps, bool kTransB>
__device__ __forceinline__ void load_b(uint32_t (&b)[kSteps][kBlocks * kTiles][2],
                                       const RankUpdate& p, const bf16* from, int64_t column) {
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, q = lane % 4;
#pragma unroll
  for (int s = 0; s < kSteps; ++s)
#pragma unroll
    for (int t = 0; t < kBlocks * kTiles; ++t)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int64_t at = column + t / kTiles * 32 + g / 2 * 8 + t % kTiles * 2 + g % 2;
        const int row = 16 * s + 8 * half + 2 * q, count = at < p.n ? p.k - row : 0;
        b[s][t][half] = kTransB ? pair(from + at * p.ldb + row, 1, count)
                                : pair(from + row * p.ldb + at, p.ldb, count);
      }
}

__device__ __forceinline__ int at_most(int64_t count, int most) {
  return static_cast<int>(count < most ? count : most);
}

template <int kSteps, bool kTransB, bool kAligned>
__global__ void __launch_bounds__(kThreads, kSteps <= 2 ? 2 : 1)
    rank_update_kernel(const __grid_constant__ RankUpdate p) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int g = lane / 4, q = lane % 4;
  const int64_t across = blockIdx.x % p.column_blocks, down = blockIdx.x / p.column_blocks;
  const int64_t column = across * kColumns + warp % kWarpsAcross * kWarpColumns,
                row = down * kRows + warp / kWarpsAcross * kWarpRows;
  if (column >= p.n || row >= p.m) return;
  for (int64_t item = blockIdx.y; item < p.batch; item += gridDim.y) {
    uint32_t b[kSteps][kBlocks * kTiles][2];
    load_b<kSteps, kTransB>(b, p, p.b + item * p.stride_b, column);
    Rows<kSteps, kAligned> rows{
        p.a + item * p.stride_a + (row + g) * p.lda + 2 * q,
        p.c + item * p.stride_c + (row + g) * p.ldc + column + 8 * q,
        at_most(p.m - row - g, kWarpRows),
        {at_most(p.n - column - 8 * q, 8), at_most(p.n - column - 32 - 8 * q, 8)},
        p.k - 2 * q,
        p.lda,
        p.ldc};
    OldRows old = rows.load(0);
#pragma unroll 1
    for (int slab = 0; slab < kSlabs; ++slab) {
      const OldRows next = slab + 1 < kSlabs ? rows.load(16) : old;  // while this is multiplied
      rows.add(b, old);
      rows.go_down();
      old = next;
    }
  }
}

template <int kSteps, bool kTransB, bool kAligned>
void launch(DeviceState& device, const RankUpdate& p) {
  const int64_t blocks = p.column_blocks * ((p.m - 1) / kRows + 1);
  const dim3 grid(static_cast<unsigned>(blocks),
                  static_cast<unsigned>(std::min<int64_t>(p.batch, 65'535)));
  rank_update_kernel<kSteps, kTransB, kAligned><<<grid, kThreads, 0, device.stream>>>(p);
}

template <int kSteps, bool kAligned>
void launch_as_stored(DeviceState& device, const RankUpdate& p, bool trans_b) {
  trans_b ? launch<kSteps, true, kAligned>(device, p) : launch<kSteps, false, kAligned>(device, p);
}

// Rows in one kernel, for any alignment the slowest one alone.
void launch_for_rank(DeviceState& device, const RankUpdate& p, bool trans_b, bool aligned) {
  if (!aligned)
    launch_as_stored<4, false>(device, p, trans_b);
  else if (p.k <= 16)
    launch_as_stored<1, true>(device, p, trans_b);
  else if (p.k <= 32)
    launch_as_stored<2, true>(device, p, trans_b);
  else if (p.k <= 48)
    launch_as_stored<3, true>(device, p, trans_b);
  else
    launch_as_stored<4, true>(device, p, trans_b);
}

}  // namespace

int32_t rank_update(DeviceState& device, const GemmParams& p) {
  const RankUpdate update{static_cast<const bf16*>(p.a),
                          static_cast<const bf16*>(p.b),
                          static_cast<bf16*>(p.c),
                          p.m,
                          p.n,
                          p.lda,
                          p.ldb,
                          p.ldc,
                          p.batch,
                          p.stride_a,
                          p.stride_b,
                          p.stride_c,
                          (p.n - 1) / kColumns + 1,
                          static_cast<int>(p.k)};
  const bool words_of_a = (p.k | p.lda | p.stride_a) % 2 == 0 &&
                          reinterpret_cast<uintptr_t>(p.a) % sizeof(uint32_t) == 0;
  const bool aligned = words_of_a && (p.n | p.ldc | p.stride_c) % 8 == 0 && aligned16(p.c);
  launch_for_rank(device, update, p.trans_b, aligned);
  return launched(device, "rank_update");
}

}  // namespace trafo::cuda
