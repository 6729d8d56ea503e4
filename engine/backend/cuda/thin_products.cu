// down = A B and up (+)= A^T D in one pass over A [T, n], for B [n, r] and D [T, r] with a small r.
// A block has 1,024 columns of A, a warp 128 of them, and goes down the rows of its part, 16 at a
// time. A warp holds its columns' rows of B and its part of `up` in registers; what the warps make
// of `down` meets in shared memory. Parts of both results are added up by another kernel. Floor: 2
// bytes an element of A.
//
// As in rank_update.cu, the columns of an mma are not neighbours: word t of the 16 bytes of lane
// 4 g + q has the columns 8 q + 2 t and the next of a group of 32. A as the second operand of the
// transposed product comes from the same registers, 8 x 8 at a time (movmatrix).
#include "engine/backend/cuda/thin_products.h"

#include <algorithm>

#include "engine/backend/cuda/device/mma.cuh"
#include "engine/backend/cuda/device/numeric.cuh"

namespace trafo::cuda {
namespace {

constexpr int kMostRank = 16, kMostPairs = 4;
constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr int kGroups = 4, kWarpColumns = 32 * kGroups, kColumns = kWarps * kWarpColumns;
constexpr int kSlabs = 2, kSlabRows = 16, kStepRows = kSlabs * kSlabRows;
constexpr int kPitch = kMostRank + 4;  // of a row in shared memory, in floats

struct Pair {
  const bf16 *a, *b, *d;
  int64_t lda, ldb, ldd;
  int64_t columns;  // n
  int64_t before;   // columns of the pairs before this one
  int strips;       // of kColumns
  bf16* down;
  int64_t ld_down;
  void* up;
  int64_t ld_up;
  bool up_is_f32, accumulate_up;
};

struct ThinProducts {
  Pair pairs[kMostPairs];
  int count;
  int rank, strips;
  int64_t rows, part_rows, parts, columns;  // T; of a block; n of all
  float *down_parts, *up_parts;             // [strips, T, 16] and [parts, n of all, 16]
};

__device__ __forceinline__ uint32_t bits(bf16 x) {
  return __bfloat16_as_ushort(x);
}

__device__ __forceinline__ uint32_t transposed(uint32_t x) {
  uint32_t y;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}

// Rows g and g + 8 of 16, eight columns in each group.
struct Slab {
  uint4 eight[2][kGroups];
};

struct Lane {
  int warp, g, q;
  __device__ Lane()
      : warp(static_cast<int>(threadIdx.x) / 32),
        g(static_cast<int>(threadIdx.x) % 32 / 4),
        q(static_cast<int>(threadIdx.x) % 4) {}
};

__device__ __forceinline__ Slab load_slab(const Pair& p, const Lane& lane, int64_t row,
                                          int64_t column, int64_t rows) {
  Slab slab;
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      const int64_t line = row + lane.g + 8 * half, at = column + 32 * group + 8 * lane.q;
      slab.eight[half][group] =
          line < rows && at < p.columns
              ? __ldcs(reinterpret_cast<const uint4*>(p.a + line * p.lda + at))
              : uint4{};
    }
  return slab;
}

// Word `half` of step j: rows column + 8 q + 4 j + 2 half and the next of B, column 8 tile + g.
__device__ __forceinline__ uint32_t pair_of_b(const Pair& p, const Lane& lane, int64_t column,
                                              int tile, int rank) {
  const int at = 8 * tile + lane.g;
  if (column >= p.columns || at >= rank) return 0;
  const bf16* const from = p.b + column * p.ldb + at;
  return bits(from[0]) | bits(from[p.ldb]) << 16;
}

// 16 rows of D, eight rows and eight columns a word.
struct RowsOfD {
  uint32_t words[4];
};

__device__ __forceinline__ RowsOfD load_d(const Pair& p, const Lane& lane, int64_t row,
                                          int64_t rows, int rank) {
  RowsOfD d;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int64_t line = row + lane.g + 8 * (i / 2);
    const int at = 8 * (i % 2) + 2 * lane.q;
    d.words[i] =
        line < rows && at < rank ? *reinterpret_cast<const uint32_t*>(p.d + line * p.ldd + at) : 0;
  }
  return d;
}

__global__ void __launch_bounds__(kThreads, 1)
    thin_products_kernel(const __grid_constant__ ThinProducts t) {
  __shared__ float meeting[2][kWarps][kStepRows][kPitch];
  const Lane lane;
  int strip = static_cast<int>(blockIdx.x), number = 0;
  while (strip >= t.pairs[number].strips) strip -= t.pairs[number++].strips;
  const Pair& p = t.pairs[number];
  const int64_t column = static_cast<int64_t>(strip) * kColumns + lane.warp * kWarpColumns;
  const int64_t first = static_cast<int64_t>(blockIdx.y) * t.part_rows;
  const int64_t end = min(t.rows, first + t.part_rows);

  uint32_t b[kGroups][2][2][2];  // group, step, tile of eight columns of B, half
#pragma unroll
  for (int group = 0; group < kGroups; ++group)
#pragma unroll
    for (int i = 0; i < 8; ++i)
      b[group][i / 4][i / 2 % 2][i % 2] = pair_of_b(
          p, lane, column + 32 * group + 8 * lane.q + 4 * (i / 4) + 2 * (i % 2), i / 2 % 2, t.rank);
  float up[kGroups][4][4] = {};

  Slab slab = load_slab(p, lane, first, column, end);
  RowsOfD rows_of_d = load_d(p, lane, first, end, t.rank);
  int buffer = 0;
  for (int64_t step = first; step < end; step += kStepRows, buffer ^= 1) {
#pragma unroll 1
    for (int s = 0; s < kSlabs; ++s) {
      const int64_t below = step + (s + 1) * kSlabRows;  // loaded while this slab is multiplied
      const Slab next = load_slab(p, lane, below, column, end);
      const RowsOfD next_d = load_d(p, lane, below, end, t.rank);
      uint32_t d[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) d[i] = transposed(rows_of_d.words[i]);
      float down[2][4] = {};
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        const uint4 low = slab.eight[0][group], high = slab.eight[1][group];
        const uint32_t x[4] = {low.x, low.y, low.z, low.w}, y[4] = {high.x, high.y, high.z, high.w};
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const uint32_t a[4] = {x[2 * j], y[2 * j], x[2 * j + 1], y[2 * j + 1]};
#pragma unroll
          for (int tile = 0; tile < 2; ++tile)
            mma_bf16(down[tile], a, b[group][j][tile][0], b[group][j][tile][1]);
        }
#pragma unroll
        for (int w = 0; w < 4; ++w) mma_bf16(up[group][w], d, transposed(x[w]), transposed(y[w]));
      }
#pragma unroll
      for (int tile = 0; tile < 2; ++tile)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          *reinterpret_cast<float2*>(&meeting[buffer][lane.warp][s * kSlabRows + lane.g + 8 * half]
                                             [8 * tile + 2 * lane.q]) =
              make_float2(down[tile][2 * half], down[tile][2 * half + 1]);
      slab = next;
      rows_of_d = next_d;
    }
    __syncthreads();  // the other buffer is read before the next one
    constexpr int kPieces = kMostRank / 2;
    static_assert(kThreads == kStepRows * kPieces);
    const int line = static_cast<int>(threadIdx.x) / kPieces,
              piece = static_cast<int>(threadIdx.x) % kPieces * 2;
    float2 sum{};
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) {
      const float2 term = *reinterpret_cast<const float2*>(&meeting[buffer][warp][line][piece]);
      sum.x += term.x;
      sum.y += term.y;
    }
    if (step + line < end)
      *reinterpret_cast<float2*>(
          t.down_parts + (static_cast<int64_t>(blockIdx.x) * t.rows + step + line) * kMostRank +
          piece) = sum;
  }

  float* const to =
      t.up_parts + (static_cast<int64_t>(blockIdx.y) * t.columns + p.before) * kMostRank;
#pragma unroll
  for (int group = 0; group < kGroups; ++group)
#pragma unroll
    for (int w = 0; w < 4; ++w)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int64_t at = column + 32 * group + 8 * lane.q + 2 * w + e;
        if (at >= p.columns) continue;
        to[at * kMostRank + lane.g] = up[group][w][e];
        to[at * kMostRank + lane.g + 8] = up[group][w][2 + e];
      }
}

__device__ __forceinline__ float4 sum_of_parts(const float* from, int64_t parts, int64_t stride) {
  float4 sum{};
  for (int64_t part = 0; part < parts; ++part) {
    const float4 term = *reinterpret_cast<const float4*>(from + part * stride);
    sum.x += term.x;
    sum.y += term.y;
    sum.z += term.z;
    sum.w += term.w;
  }
  return sum;
}

// A thread: four elements of a row of `down` of a pair, or of `up`.
__global__ void __launch_bounds__(256) thin_sums_kernel(const __grid_constant__ ThinProducts t) {
  constexpr int kPieces = kMostRank / 4;
  const int64_t index = int64_t{blockIdx.x} * 256 + threadIdx.x;
  int64_t row = index / kPieces;
  const int piece = static_cast<int>(index % kPieces) * 4;
  const int count = min(4, t.rank - piece);
  const int64_t down_rows = t.count * t.rows;
  if (count <= 0 || row >= down_rows + t.columns) return;
  if (row < down_rows) {
    const int number = static_cast<int>(row / t.rows);
    row %= t.rows;
    int strips = 0;
    for (int i = 0; i < number; ++i) strips += t.pairs[i].strips;
    const Pair& p = t.pairs[number];
    const float4 sum = sum_of_parts(t.down_parts + (strips * t.rows + row) * kMostRank + piece,
                                    p.strips, t.rows * kMostRank);
    const float values[4] = {sum.x, sum.y, sum.z, sum.w};
    for (int i = 0; i < count; ++i)
      p.down[row * p.ld_down + piece + i] = __float2bfloat16_rn(values[i]);
    return;
  }
  row -= down_rows;
  const float4 sum =
      sum_of_parts(t.up_parts + row * kMostRank + piece, t.parts, t.columns * kMostRank);
  const float values[4] = {sum.x, sum.y, sum.z, sum.w};
  int number = t.count - 1;
  while (row < t.pairs[number].before) --number;
  const Pair& p = t.pairs[number];
  const int64_t at = (row - p.before) * p.ld_up + piece;
  for (int i = 0; i < count; ++i) {
    if (p.up_is_f32) {
      float* const to = static_cast<float*>(p.up) + at + i;
      *to = values[i] + (p.accumulate_up ? *to : 0.0f);
    } else {
      bf16* const to = static_cast<bf16*>(p.up) + at + i;
      *to = __float2bfloat16_rn(values[i] + (p.accumulate_up ? __bfloat162float(*to) : 0.0f));
    }
  }
}

bool in_words(const void* x, int64_t ld) {
  return ld % 2 == 0 && reinterpret_cast<uintptr_t>(x) % sizeof(uint32_t) == 0;
}

bool is_pair(const GemmParams& down, const GemmParams& up) {
  const auto plain = [](const GemmParams& p) {
    return p.dtype == DType::bf16 && !p.trans_b && !p.bias && p.batch == 1 && p.term_k == 0 &&
           p.epilogue == Epilogue::none && !p.a_sums && p.m > 0 && p.n > 0 && p.k > 0;
  };
  return plain(down) && plain(up) && down.a == up.a && down.lda == up.lda && !down.trans_a &&
         up.trans_a && down.m == up.k && down.k == up.m && down.n == up.n && down.n <= kMostRank &&
         down.n % 2 == 0 && (down.k | down.lda) % 8 == 0 && aligned16(down.a) &&
         in_words(up.b, up.ldb) && !down.accumulate && !down.c_is_f32;
}

}  // namespace

size_t thin_pairs(const DeviceState& device, std::span<const GemmParams> gemms) {
  if (device.compute_major < 8) return 0;
  size_t count = 0;
  while (count < kMostPairs && 2 * count + 1 < gemms.size()) {
    const GemmParams &down = gemms[2 * count], &up = gemms[2 * count + 1];
    if (!is_pair(down, up) || down.m != gemms[0].m || down.n != gemms[0].n) break;
    ++count;
  }
  return 2 * count;
}

int32_t thin_products(DeviceState& device, std::span<const GemmParams> gemms) {
  ThinProducts t{};
  t.count = static_cast<int>(gemms.size() / 2);
  t.rank = static_cast<int>(gemms[0].n);
  t.rows = gemms[0].m;
  for (int i = 0; i < t.count; ++i) {
    const GemmParams &down = gemms[2 * i], &up = gemms[2 * i + 1];
    const int strips = static_cast<int>((down.k - 1) / kColumns + 1);
    t.pairs[i] = {static_cast<const bf16*>(down.a),
                  static_cast<const bf16*>(down.b),
                  static_cast<const bf16*>(up.b),
                  down.lda,
                  down.ldb,
                  up.ldb,
                  down.k,
                  t.columns,
                  strips,
                  static_cast<bf16*>(down.c),
                  down.ldc,
                  up.c,
                  up.ldc,
                  up.c_is_f32,
                  up.accumulate};
    t.columns += down.k;
    t.strips += strips;
  }
  // As many parts as fill the device once.
  const int64_t wanted = std::max(1, device.multiprocessors / t.strips);
  t.part_rows = ((t.rows - 1) / wanted / kStepRows + 1) * kStepRows;
  t.parts = (t.rows - 1) / t.part_rows + 1;
  const int64_t down_floats = t.strips * t.rows * kMostRank,
                up_floats = t.parts * t.columns * kMostRank;
  t.down_parts = static_cast<float*>(
      device.scratch(static_cast<size_t>(down_floats + up_floats) * sizeof(float)));
  if (!t.down_parts) return kOutOfMemory;
  t.up_parts = t.down_parts + down_floats;
  thin_products_kernel<<<dim3(static_cast<unsigned>(t.strips), static_cast<unsigned>(t.parts)),
                         kThreads, 0, device.stream>>>(t);
  const int64_t threads = (t.count * t.rows + t.columns) * (kMostRank / 4);
  thin_sums_kernel<<<static_cast<unsigned>((threads - 1) / 256 + 1), 256, 0, device.stream>>>(t);
  return launched(device, "thin_products");
}

}  // namespace trafo::cuda
