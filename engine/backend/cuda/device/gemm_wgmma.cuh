// The frame of a GEMM of bfloat16 for compute capability 9.0 that does its own work on sums before
// they are written.
//
// A block stays on its multiprocessor and works on tile after tile of C. One warpgroup brings the
// operands with the copy engine, two multiply, each a separate tile: one multiplies while the other
// computes and writes its results. Two blocks form a cluster; they work on tiles one below the
// other and bring half of B for both.
//
// A layout L of shared memory has kStages, kStageBytes and kABytes of GemmStages, and of the
// kernel: kBoxesAt and kBoxes, what each consumer's warp writes through (kBoxBytes each), and
// kBarriersAt, 8 * gemm_barriers(kBoxes) bytes.
#pragma once

#include <algorithm>
#include <type_traits>

#include "engine/backend/cuda/device/rows.cuh"
#include "engine/backend/cuda/device/tensor_map.cuh"
#include "engine/backend/cuda/device/wgmma.cuh"
#include "engine/backend/cuda/shared_memory.h"

namespace trafo::cuda {

inline constexpr int kGemmRows = 128, kGemmDepth = 64, kGemmBlocks = 2;  // of a tile; of a cluster
inline constexpr int kGemmConsumers = 2, kGemmThreads = (kGemmConsumers + 1) * kWarpgroup;
inline constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;
inline constexpr uint32_t kBoxBytes = 16 * 64 * 2;  // what a warp writes at once: 16 x 64

template <int Columns>
struct GemmStages {
  static constexpr int kStages = 4;
  static constexpr uint32_t kABytes = kGemmRows * kGemmDepth * 2,
                            kBBytes = Columns * kGemmDepth * 2;
  static constexpr uint32_t kStageBytes = kABytes + kBBytes;
};

constexpr uint32_t gemm_barriers(int stages, int boxes) {
  return static_cast<uint32_t>(2 * stages + 4 * kGemmConsumers * boxes);
}

struct GemmTiles {
  int m, n, k;
  int row_tiles, column_tiles;  // row tiles: of a cluster
  int group;                    // column tiles that a row's tiles are done for, before the next row
};

#ifdef TRAFO_HAS_WGMMA

struct GemmTile {
  int row, column;  // of the cluster
  __device__ __forceinline__ GemmTile(const GemmTiles& p, int number, int columns) {
    const int part = number / (p.row_tiles * p.group), rest = number % (p.row_tiles * p.group);
    const int width = min(p.group, p.column_tiles - part * p.group);
    row = rest / width * (kGemmBlocks * kGemmRows);
    column = (part * p.group + rest % width) * columns;
  }
};

template <class L>
struct GemmRoom {
  uint32_t base;
  __device__ uint32_t a(uint32_t stage) const { return base + stage * L::kStageBytes; }
  __device__ uint32_t b(uint32_t stage) const { return a(stage) + L::kABytes; }
  __device__ uint32_t box(int warp, uint32_t i) const {
    return base + L::kBoxesAt + (static_cast<uint32_t>(warp) * L::kBoxes + i) * kBoxBytes;
  }
  __device__ uint32_t full(uint32_t stage) const { return base + L::kBarriersAt + 8 * stage; }
  __device__ uint32_t empty(uint32_t stage) const { return full(L::kStages + stage); }
  __device__ uint32_t box_full(int warp, uint32_t i) const {
    return full(2 * L::kStages + static_cast<uint32_t>(warp) * L::kBoxes + i);
  }
};

// Brings columns `from` to from + kGemmDepth of A and as many rows of B for a tile into a stage.
template <class L, bool BRows, int Columns>
__device__ __forceinline__ void bring_operands(const GemmRoom<L>& room, const GemmTile& tile,
                                               uint32_t stage, int from, const CUtensorMap& a_map,
                                               const CUtensorMap& b_map) {
  const auto rank = static_cast<int>(block_in_cluster());
  constexpr uint16_t kBoth = (1 << kGemmBlocks) - 1;
  const uint32_t full = room.full(stage);
  arrive_expecting(full, L::kStageBytes);
  load_box(room.a(stage), a_map, full, from, 0, tile.row + rank * kGemmRows);
  if constexpr (BRows) {
    constexpr int kHalf = kGemmDepth / kGemmBlocks;
#pragma unroll
    for (int panel = 0; panel < Columns / 64; ++panel)
      load_box_to(kBoth, room.b(stage) + panel * (kGemmDepth * 128) + rank * (kHalf * 128), b_map,
                  full, tile.column + 64 * panel, 0, from + rank * kHalf);
  } else {
    constexpr int kHalf = Columns / kGemmBlocks;
    load_box_to(kBoth, room.b(stage) + rank * (kHalf * 128), b_map, full, from, 0,
                tile.column + rank * kHalf);
  }
}

// The producer. With a term, one more step of each tile comes from its maps.
template <class L, bool BRows, int Columns>
__device__ __forceinline__ void produce(const GemmTiles& p, const GemmRoom<L>& room,
                                        const CUtensorMap& a_map, const CUtensorMap& b_map,
                                        const CUtensorMap* term_a, const CUtensorMap* term_b) {
  const int clusters = gridDim.x / kGemmBlocks, tiles = p.row_tiles * p.column_tiles;
  const int depth = (p.k + kGemmDepth - 1) / kGemmDepth, steps = depth + (term_a != nullptr);
  uint32_t fill = 0;
  for (int number = blockIdx.x / kGemmBlocks; number < tiles; number += clusters) {
    const GemmTile tile(p, number, Columns);
    for (int step = 0; step < steps; ++step, ++fill) {
      const uint32_t stage = fill % L::kStages;
      wait_barrier(room.empty(stage), (fill / L::kStages + 1) % 2);
      if (step < depth)
        bring_operands<L, BRows, Columns>(room, tile, stage, step * kGemmDepth, a_map, b_map);
      else
        bring_operands<L, BRows, Columns>(room, tile, stage, 0, *term_a, *term_b);
    }
  }
}

__device__ __forceinline__ void store_matrices(uint32_t to, const uint32_t (&x)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(x[0]),
               "r"(x[1]), "r"(x[2]), "r"(x[3])
               : "memory");
}

// In order with what else is volatile: the sums of a tile in half as many registers.
__device__ __forceinline__ uint32_t round_pair(float low, float high) {
  uint32_t pair;
  asm volatile("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// The sums of a warpgroup's tile as a GEMM rounds them. v[half][n][i]: rows 64 half + g + 8 i.
template <int Columns>
using RoundedTile = uint32_t[2][Columns / 8][2];

// A consumer. TermSteps: 16 columns each that the step of the term has, 0 without one.
// begin(tile, count) before a tile, the number `count` of this block, is multiplied; finish(tile,
// count, v) when it is.
template <class L, bool BRows, int Columns, int TermSteps, class Begin, class Finish>
__device__ __forceinline__ void consume(const GemmTiles& p, const GemmRoom<L>& room, Begin begin,
                                        Finish finish) {
  const int clusters = gridDim.x / kGemmBlocks, tiles = p.row_tiles * p.column_tiles;
  const int depth = (p.k + kGemmDepth - 1) / kGemmDepth;
  const int group = uniform(static_cast<int>(threadIdx.x) / kWarpgroup) - 1;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (group == 1) arrive_threads(1, kGemmConsumers * kWarpgroup);

  for (int count = group;; count += kGemmConsumers) {
    const int number = static_cast<int>(blockIdx.x) / kGemmBlocks + count * clusters;
    if (number >= tiles) break;
    const GemmTile tile(p, number, Columns);
    begin(tile, count);

    SumsOf<Columns> c[2];
    uint32_t fill = static_cast<uint32_t>(count) * (depth + (TermSteps > 0));
    const auto release = [&](uint32_t stage) {
      __syncwarp();
      if (lane < kGemmBlocks) arrive_in(lane, room.empty(stage));
    };
    const auto multiply_stage = [&](auto sixteens) {
      const uint32_t stage = fill % L::kStages;
      wait_barrier(room.full(stage), fill / L::kStages % 2);
      const uint32_t a = describe(in_block(room.a(stage))),
                     b = describe(in_block(room.b(stage)), BRows ? kGemmDepth * 128 : 16);
      wgmma_begin();
#pragma unroll
      for (int k = 0; k < decltype(sixteens)::value; ++k)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          multiply<false, BRows>(c[half], a + half * (64 * 128 / 16) + k * 2,
                                 b + k * (BRows ? 16 * 128 / 16 : 2), true);
      wgmma_commit();
    };
    sync_threads(1 + group,
                 kGemmConsumers * kWarpgroup);  // the other warpgroup has issued its tile
    // Set, and not left to the first product: the registers are free while results are written.
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int n = 0; n < Columns / 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) c[half][n][e] = 0;
    pin(c[0]);
    pin(c[1]);
    for (int step = 0; step < depth; ++step, ++fill) {
      multiply_stage(std::integral_constant<int, kGemmDepth / 16>{});
      if (step > 0) {
        wgmma_wait<1>();
        release((fill - 1) % L::kStages);
      }
    }
    if constexpr (TermSteps > 0) {
      multiply_stage(std::integral_constant<int, TermSteps>{});
      wgmma_wait<1>();
      release((fill - 1) % L::kStages);
      ++fill;
    }
    if (number + clusters < tiles) arrive_threads(2 - group, kGemmConsumers * kWarpgroup);
    wgmma_wait<0>();
    pin(c[0]);
    pin(c[1]);
    release((fill - 1) % L::kStages);

    RoundedTile<Columns> v;
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int n = 0; n < Columns / 8; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          v[half][n][i] = round_pair(c[half][n][2 * i], c[half][n][2 * i + 1]);
    finish(tile, count, v);
  }
  if (lane == 0) wait_writes();
}

// A block of such a kernel.
template <class L, class Produce, class Consume>
__device__ __forceinline__ void gemm_block(const GemmRoom<L>& room, Produce producer,
                                           Consume consumer) {
  if (threadIdx.x == 0) {
    for (uint32_t stage = 0; stage < L::kStages; ++stage) {
      init_barrier(room.full(stage), 1);
      init_barrier(room.empty(stage), 4 * kGemmBlocks);
    }
    for (int warp = 0; warp < 4 * kGemmConsumers; ++warp)
      for (uint32_t i = 0; i < L::kBoxes; ++i) init_barrier(room.box_full(warp, i), 1);
    publish_barriers();
  }
  __syncthreads();
  sync_cluster();
  if (uniform(static_cast<int>(threadIdx.x) / kWarpgroup) == 0) {
    leave_registers<kProducerRegisters>();
    if (threadIdx.x == 0) producer();
    __syncwarp();
  } else {
    take_registers<kConsumerRegisters>();
    consumer();
    __syncwarp();
  }
  sync_cluster();  // the other block may still bring B here, and wait for this one's arrivals
}

#endif  // TRAFO_HAS_WGMMA

#ifdef TRAFO_CUDA_90A
inline constexpr bool kHasHopperGemm = true;
#else
inline constexpr bool kHasHopperGemm = false;  // kernels made of this have no body
#endif

inline constexpr int kGemmColumns = 192;  // of a tile

// Whether A B keeps the card busy in tiles of two blocks, and lies on whole pieces of 16 bytes.
// Fills in `tiles`.
inline bool gemm_tiles(const DeviceState& device, const GemmParams& g, GemmTiles& tiles) {
  // Column tiles that are done for a row tile before the next: their part of B stays in the cache.
  constexpr int64_t kMostGroup = 16;
  const int64_t rows = (g.m + kGemmBlocks * kGemmRows - 1) / (kGemmBlocks * kGemmRows),
                columns = (g.n + kGemmColumns - 1) / kGemmColumns;
  if (!kHasHopperGemm || g.trans_a || g.k <= 0 || (g.n | g.k | g.lda | g.ldb | g.ldc) % 8 != 0 ||
      !aligned16(g.a) || !aligned16(g.b) || !aligned16(g.c) ||
      rows * columns < device.multiprocessors || rows * columns >= 1 << 20)
    return false;
  const int64_t parts = (columns + kMostGroup - 1) / kMostGroup;
  tiles = {static_cast<int>(g.m),     static_cast<int>(g.n),
           static_cast<int>(g.k),     static_cast<int>(rows),
           static_cast<int>(columns), static_cast<int>((columns + parts - 1) / parts)};
  return true;
}

// Whether the maps of A [m, k] and B, [k, n] if b_rows else [n, k], could be made.
inline bool map_operands(const GemmParams& g, bool b_rows, CUtensorMap& a_map, CUtensorMap& b_map) {
  return make_tensor_map(a_map, g.a, g.lda, g.m, 1, g.k, kGemmRows) &&
         (b_rows ? make_tensor_map(b_map, g.b, g.ldb, g.k, 1, g.n, kGemmDepth / kGemmBlocks)
                 : make_tensor_map(b_map, g.b, g.ldb, g.n, 1, g.k, kGemmColumns / kGemmBlocks));
}

// Starts a kernel of gemm_block with L::kBytes of shared memory.
template <class L, class... Params, class... Args>
int32_t launch_gemm(DeviceState& device, const GemmTiles& tiles, const char* name,
                    void (*kernel)(Params...), const Args&... args) {
  const cudaError_t raised =
      raise_shared_memory(device, reinterpret_cast<const void*>(kernel), L::kBytes);
  if (raised != cudaSuccess) return report(device, raised, name);
  const int clusters =
      std::min(device.multiprocessors / kGemmBlocks, tiles.row_tiles * tiles.column_tiles);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(clusters * kGemmBlocks));
  config.blockDim = dim3(kGemmThreads);
  config.dynamicSmemBytes = L::kBytes;
  config.stream = device.stream;
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = kGemmBlocks;
  cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  config.attrs = &cluster;
  config.numAttrs = 1;
  cudaLaunchKernelEx(&config, kernel, args...);
  return launched(device, name);
}

}  // namespace trafo::cuda
