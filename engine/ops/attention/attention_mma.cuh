// Tiles of bfloat16 in shared memory, and their multiplication on the tensor cores (mma.sync
// m16n8k16, float32 sums).
//
// Lane 4 g + t of a warp holds, of a 16 x 8 result, rows g and g + 8, columns 2 t and 2 t + 1:
// c[0], c[1] and c[2], c[3].
#pragma once

#include <algorithm>
#include <type_traits>

#include "engine/backend/cuda/device/largest.cuh"
#include "engine/backend/cuda/device/mma.cuh"
#include "engine/ops/attention/attention_cuda.cuh"

namespace trafo::cuda {

inline constexpr int kMmaThreads = 128;
inline constexpr int kStreamedRows = 64;  // of the tiles that a block loops over
inline constexpr float kLog2e = 1.4426950408889634f;
inline constexpr float kLn2 = 0.6931471805599453f;

// Groups of 16 rows, the height of one mma, that `rows` rows touch.
__host__ __device__ constexpr int whole_groups(int rows) {
  return (rows + 15) / 16;
}

struct Quad {
  uint32_t x[4];
};

// A tile [rows, D] in shared memory. The 16-byte pieces of a row are permuted by the row's number,
// so that the eight rows of one matrix load lie in different banks.
template <int D>
struct MmaTile {
  static_assert(D == 32 || D == 64 || D == 128);
  static constexpr int kPieces = D / 8;
  uint32_t base;  // address in the shared window

  static __device__ __forceinline__ uint32_t offset(int row, int piece) {
    const int place = D == 32 ? piece ^ (row / 2 % 4) : piece ^ (row % 8);
    return static_cast<uint32_t>((row * kPieces + place) * 16);
  }
  __device__ __forceinline__ uint32_t at(int row, int piece) const {
    return base + offset(row, piece);
  }
};

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// 16 bytes (4 in copy4) from device to shared memory in the background; zeros where !exists.
__device__ __forceinline__ void copy16(uint32_t to, const void* from, bool exists) {
  const int bytes = exists ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void copy4(uint32_t to, const void* from, bool exists) {
  const int bytes = exists ? 4 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// All but the newest `Open` groups have arrived, for this thread.
template <int Open>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Open) : "memory");
}

__device__ __forceinline__ void store_shared(uint32_t to, uint32_t word) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(word) : "memory");
}

__device__ __forceinline__ Quad load_matrices(uint32_t address) {
  Quad q;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(q.x[0]), "=r"(q.x[1]), "=r"(q.x[2]), "=r"(q.x[3])
               : "r"(address)
               : "memory");
  return q;
}
__device__ __forceinline__ Quad load_matrices_transposed(uint32_t address) {
  Quad q;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(q.x[0]), "=r"(q.x[1]), "=r"(q.x[2]), "=r"(q.x[3])
               : "r"(address)
               : "memory");
  return q;
}

// Rows of the operands below are multiples of 16. A tile begins at a multiple of its rows' length,
// so the number of a piece can be changed by xor in the address: one instruction, and no table of
// addresses in registers.

// Left operand: rows row .. row + 15, columns 16 k .. 16 k + 15.
template <int D>
__device__ __forceinline__ Quad load_left(const MmaTile<D>& tile, int row, int k) {
  const int lane = threadIdx.x % 32;
  return load_matrices((tile.at(lane % 16, lane / 16) ^ 32u * k) + row * D * 2);
}
// Right operand of x tile^T: x[0], x[1] for the tile's rows row .. row + 7 as columns of the
// result, x[2], x[3] for the next eight; the tile's columns 16 k .. 16 k + 15 are summed over.
template <int D>
__device__ __forceinline__ Quad load_right_rows(const MmaTile<D>& tile, int row, int k) {
  const int lane = threadIdx.x % 32;
  return load_matrices((tile.at(lane % 8 + lane / 16 * 8, lane / 8 % 2) ^ 32u * k) + row * D * 2);
}
// Right operand of x tile: rows row .. row + 15 are summed over; x[0], x[1] for the tile's columns
// 16 n .. 16 n + 7, x[2], x[3] for the next eight.
template <int D>
__device__ __forceinline__ Quad load_right_columns(const MmaTile<D>& tile, int row, int n) {
  const int lane = threadIdx.x % 32;
  return load_matrices_transposed((tile.at(lane % 16, lane / 16) ^ 32u * n) + row * D * 2);
}

// Left operand of tile^T x: the tile's columns 16 n .. 16 n + 15 are rows of the result, its rows
// row .. row + 15 are summed over.
template <int D>
__device__ __forceinline__ Quad load_left_transposed(const MmaTile<D>& tile, int row, int n) {
  const int lane = threadIdx.x % 32;
  return load_matrices_transposed((tile.at(lane % 8 + lane / 16 * 8, lane / 8 % 2) ^ 32u * n) +
                                  row * D * 2);
}

// c += a b
__device__ __forceinline__ void multiply_add(float (&c)[4], const Quad& a, uint32_t b0,
                                             uint32_t b1) {
  mma_bf16(c, a.x, b0, b1);
}

__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
// Two neighbouring 16 x 8 results as a left operand.
__device__ __forceinline__ Quad as_left(const float (&a)[4], const float (&b)[4]) {
  return {
      {pack_bf16(a[0], a[1]), pack_bf16(a[2], a[3]), pack_bf16(b[0], b[1]), pack_bf16(b[2], b[3])}};
}

// 2^x; anything far below zero gives 0.
__device__ __forceinline__ float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Starts copying rows of x into a tile: zeros after `rows` and `width` (a multiple of 8). Called by
// all `Threads` threads.
template <int D, int Rows, int Threads>
__device__ __forceinline__ void copy_tile(const MmaTile<D>& tile, const bf16* x, int64_t stride,
                                          int rows, int width) {
  constexpr int kPieces = MmaTile<D>::kPieces, kStep = Threads / kPieces;  // rows copied at once
  static_assert(Rows % kStep == 0 && kStep % 8 == 0);
  const int row = static_cast<int>(threadIdx.x) / kPieces,
            piece = static_cast<int>(threadIdx.x) % kPieces;
  const uint32_t to = tile.at(row, piece);
  const int rest = 8 * piece < width ? rows - row : 0;
  const bf16* from = x + row * stride + 8 * piece;
#pragma unroll
  for (int i = 0; i < Rows; i += kStep) {
    copy16(to + i * D * 2, i < rest ? from : x, i < rest);
    from += kStep * stride;
  }
}

// The same for as many rows as there are, up to the next multiple of 16, and any number of warps.
template <int D>
__device__ __forceinline__ void copy_rows(const MmaTile<D>& tile, const bf16* x, int64_t stride,
                                          int rows, int width) {
  constexpr int kPieces = MmaTile<D>::kPieces;
  const int piece = static_cast<int>(threadIdx.x) % kPieces;
  const int step = static_cast<int>(blockDim.x) / kPieces;
  int row = static_cast<int>(threadIdx.x) / kPieces;
  const bf16* from = x + row * stride + 8 * piece;
  for (const int end = whole_groups(rows) * 16; row < end; row += step) {
    const bool exists = row < rows && 8 * piece < width;
    copy16(tile.at(row, piece), exists ? from : x, exists);
    from += step * stride;
  }
}

// Rows row0 .. row0 + 15 of a warp's results, times factors for rows g and g + 8, to x, of which
// `rows` rows exist counted from row 0 of the tile. `tile` is room for them that only this warp
// uses. The largest magnitude of what is stored goes to `largest`, or nowhere.
template <int D>
__device__ __forceinline__ void store_rows(const MmaTile<D>& tile, int row0,
                                           const float (&sums)[D / 8][4], float factor0,
                                           float factor1, bf16* x, int64_t stride, int rows,
                                           int width, bool accumulate,
                                           uint32_t* largest = nullptr) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  Largest<bf16> seen;
  __syncwarp();
#pragma unroll
  for (int n = 0; n < D / 8; ++n) {
    const uint32_t first = pack_bf16(sums[n][0] * factor0, sums[n][1] * factor0);
    const uint32_t second = pack_bf16(sums[n][2] * factor1, sums[n][3] * factor1);
    store_shared((tile.at(row0 + g, 0) ^ 16u * n) + 4 * t, first);
    store_shared((tile.at(row0 + g + 8, 0) ^ 16u * n) + 4 * t, second);
  }
  __syncwarp();
  constexpr int kPieces = MmaTile<D>::kPieces;
#pragma unroll
  for (int i = 0; i < 16 * kPieces / 32; ++i) {
    const int row = row0 + (i * 32 + lane) / kPieces, piece = (i * 32 + lane) % kPieces;
    Pack<bf16, 8> pack;
    auto* words = reinterpret_cast<uint32_t*>(&pack);
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(tile.at(row, piece))
                 : "memory");
    if (row >= rows || 8 * piece >= width) continue;
    bf16* to = x + row * stride + 8 * piece;
    if (accumulate) {
      const Pack<bf16, 8> old = load_pack<bf16, 8>(to);
#pragma unroll
      for (int j = 0; j < 8; ++j)
        pack.v[j] = from_float<bf16>(to_float(old.v[j]) + to_float(pack.v[j]));
    }
    store_pack(to, pack);
    if (largest) {
      uint4 held;
      memcpy(&held, &pack, sizeof held);
      seen.see(held);
    }
  }
  if (!largest) return;
  const uint32_t bits = __reduce_max_sync(0xffffffffu, seen.bits());
  if (lane == 0) atomicMax(largest, bits);
}

// delta = sum_j P_ij dP_ij = dO_i . O_i of a warp's 16 rows (Dao et al., arXiv 2205.14135,
// section 3.1), with dropout too; x and dx are row 0 of the tile, of which `rows` exist.
template <int D>
__device__ __forceinline__ void gather_delta(const bf16* x, const bf16* dx, int64_t stride,
                                             int warp_row, int rows, int width, float* delta) {
  constexpr int kPieces = D / 8;
  const int lane = threadIdx.x % 32, piece = lane % kPieces;
#pragma unroll
  for (int i = 0; i < 16 * kPieces / 32; ++i) {
    const int row = warp_row + (i * 32 + lane) / kPieces;
    float sum = 0;
    if (row < rows && 8 * piece < width) {
      const Pack<bf16, 8> a = load_pack<bf16, 8>(x + row * stride + 8 * piece);
      const Pack<bf16, 8> b = load_pack<bf16, 8>(dx + row * stride + 8 * piece);
#pragma unroll
      for (int j = 0; j < 8; ++j) sum = fmaf(to_float(a.v[j]), to_float(b.v[j]), sum);
    }
#pragma unroll
    for (int offset = kPieces / 2; offset > 0; offset /= 2)
      sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    if (piece == 0) delta[row] = sum;
  }
  __syncwarp();
}

// Which probabilities of a tile dropout keeps: for each query the bytes of the Philox blocks of its
// keys, one bit an element. The first key of a tile begins a block.
struct KeptBits {
  static constexpr int kPitch = 12;  // room for kStreamedRows / 8 blocks, on as many banks
  unsigned char* bytes;

  __device__ __forceinline__ explicit KeptBits(unsigned char* memory) : bytes(memory) {}
  // All threads of the block; a barrier before anyone reads. k0 is a multiple of 8.
  template <int Queries>
  __device__ __forceinline__ void fill(const AttentionProblem& a, const AttentionItem& item, int q0,
                                       int k0) {
    constexpr int kBlocks = kStreamedRows / 8;
    for (int at = static_cast<int>(threadIdx.x); at < Queries * kBlocks; at += kMmaThreads) {
      const int i = at / kBlocks, b = at % kBlocks;
      fill_block(a, (item.dropout_row(a, q0 + i) + k0) / 8, i, b);
    }
  }
  // The same for all queries and keys of the item, which are at most kStreamedRows.
  __device__ __forceinline__ void fill_all(const AttentionProblem& a, const AttentionItem& item) {
    const uint32_t blocks = static_cast<uint32_t>(item.keys + 7) / 8;
    for (uint32_t at = threadIdx.x; at < static_cast<uint32_t>(item.queries) * blocks;
         at += blockDim.x) {
      const int i = static_cast<int>(at / blocks);
      fill_block(a, item.dropout_row(a, i) / 8, i, static_cast<int>(at % blocks));
    }
  }
  __device__ __forceinline__ void fill_block(const AttentionProblem& a, uint64_t first, int i,
                                             int b) {
    const uint4 words = philox_block(a.dropout, first + b);
    uint32_t kept = 0;
#pragma unroll
    for (int half = 0; half < 8; ++half)
      kept |= dropout_factor(a.dropout, words, half) != 0.0f ? 1u << half : 0u;
    bytes[i * kPitch + b] = static_cast<unsigned char>(kept);
  }
  __device__ __forceinline__ bool keeps(int i, int j) const {
    const auto bit = static_cast<uint32_t>(j);
    return bytes[i * kPitch + bit / 8] >> (bit % 8) & 1;
  }
};

// One block for each head of each sequence, one warp for each group of 16 rows, as many rows of
// shared memory as the longest sequence has. Calls run(D, Groups), integral constants: the columns
// there is room for, and the groups of keys.
template <class Params, class Run>
int32_t with_short_kernel(const Params& p, int groups, Run&& run) {
  const auto with_groups = [&](auto columns) {
    using Columns = decltype(columns);
    return groups <= 2   ? run(Columns{}, std::integral_constant<int, 2>{})
           : groups == 3 ? run(Columns{}, std::integral_constant<int, 3>{})
                         : run(Columns{}, std::integral_constant<int, 4>{});
  };
  return p.head_dim <= 32   ? with_groups(std::integral_constant<int, 32>{})
         : p.head_dim <= 64 ? with_groups(std::integral_constant<int, 64>{})
                            : with_groups(std::integral_constant<int, 128>{});
}

template <class Params>
int short_groups(const Params& p) {
  return whole_groups(static_cast<int>(std::max(p.max_queries, p.max_keys)));
}

}  // namespace trafo::cuda
