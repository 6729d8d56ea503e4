// GEMM of bfloat16 for compute capability 9.0 whose results pass through GELU, or are multiplied
// with its derivative, before they are written.
//
// A block stays on its multiprocessor and works on tile after tile of C. One warpgroup brings the
// operands with the copy engine, two multiply, each a separate tile: one multiplies while the other
// computes and writes its results. Two blocks form a cluster; they work on tiles one below the
// other and bring half of B for both.
#include "engine/backend/cuda/device/philox.cuh"
#include "engine/backend/cuda/device/rows.cuh"
#include "engine/backend/cuda/device/tensor_map.cuh"
#include "engine/backend/cuda/device/wgmma.cuh"
#include "engine/backend/cuda/shared_memory.h"
#include "engine/ops/activation/activation.cuh"
#include "engine/ops/attention/attention_mma.cuh"
#include "engine/ops/feed_forward/activation_gemm.h"

namespace trafo::cuda {
namespace {

enum class Pass {
  forward,  // argument = A B, C = dropout(act(argument + bias))
  backward  // C = dropout(A B) act'(argument + bias), and sums of columns over the rows of a tile
};

constexpr int kRows = 128, kDepth = 64, kBlocks = 2;  // of a tile; of a cluster
constexpr int kConsumers = 2, kThreads = (kConsumers + 1) * kWarpgroup;
[[maybe_unused]] constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;
constexpr uint32_t kBoxBytes = 16 * 64 * 2;  // what a warp writes at once: 16 x 64

template <Pass pass, int Columns>
struct Layout {
  static constexpr int kStages = 4;
  static constexpr uint32_t kABytes = kRows * kDepth * 2, kBBytes = Columns * kDepth * 2;
  static constexpr uint32_t kStageBytes = kABytes + kBBytes;
  static constexpr int kBoxes = pass == Pass::forward ? 4 : 3;  // of a warp
  static constexpr uint32_t kBoxesAt = kStages * kStageBytes;
  static constexpr uint32_t kSumsAt = kBoxesAt + 4 * kConsumers * kBoxes * kBoxBytes;
  static constexpr uint32_t kSumsBytes =
      pass == Pass::forward ? 0 : kConsumers * 8 * Columns * sizeof(float);
  static constexpr uint32_t kBiasAt = kSumsAt + kSumsBytes;
  static constexpr uint32_t kBarriersAt = kBiasAt + 2 * kConsumers * Columns * 2;
  static constexpr uint32_t kBarriers = 2 * kStages + 4 * kConsumers * kBoxes;
  static constexpr uint32_t kBytes = kBarriersAt + 8 * kBarriers;
  static_assert(kBytes <= kHopperSharedMemory);
};

struct Problem {
  int m, n, k;
  int row_tiles, column_tiles;  // row tiles: of a cluster
  int group;                    // column tiles that a row's tiles are done for, before the next row
  const bf16* bias;             // or null
  bool writes_argument;         // forward
  float* sums;                  // backward: [row tiles of blocks, n], or null
  DropoutArgs dropout;
};

#ifdef TRAFO_HAS_WGMMA

struct Tile {
  int row, column;  // of the cluster
  __device__ __forceinline__ Tile(const Problem& p, int number, int columns) {
    const int part = number / (p.row_tiles * p.group), rest = number % (p.row_tiles * p.group);
    const int width = min(p.group, p.column_tiles - part * p.group);
    row = rest / width * (kBlocks * kRows);
    column = (part * p.group + rest % width) * columns;
  }
};

template <class L>
struct Room {
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

template <class L, bool BRows, int Columns>
__device__ __forceinline__ void produce(const Problem& p, const Room<L>& room,
                                        const CUtensorMap& a_map, const CUtensorMap& b_map) {
  const int clusters = gridDim.x / kBlocks, tiles = p.row_tiles * p.column_tiles;
  const auto rank = block_in_cluster();
  const int depth = (p.k + kDepth - 1) / kDepth;
  constexpr uint16_t kBoth = (1 << kBlocks) - 1;
  uint32_t fill = 0;
  for (int number = blockIdx.x / kBlocks; number < tiles; number += clusters) {
    const Tile tile(p, number, Columns);
    for (int step = 0; step < depth; ++step, ++fill) {
      const uint32_t stage = fill % L::kStages, full = room.full(stage);
      wait_barrier(room.empty(stage), (fill / L::kStages + 1) % 2);
      arrive_expecting(full, L::kStageBytes);
      load_box(room.a(stage), a_map, full, step * kDepth, 0,
               tile.row + static_cast<int>(rank) * kRows);
      if constexpr (BRows) {
        constexpr int kHalf = kDepth / kBlocks;
#pragma unroll
        for (int panel = 0; panel < Columns / 64; ++panel)
          load_box_to(kBoth, room.b(stage) + panel * (kDepth * 128) + rank * (kHalf * 128), b_map,
                      full, tile.column + 64 * panel, 0,
                      step * kDepth + static_cast<int>(rank) * kHalf);
      } else {
        constexpr int kHalf = Columns / kBlocks;
        load_box_to(kBoth, room.b(stage) + rank * (kHalf * 128), b_map, full, step * kDepth, 0,
                    tile.column + static_cast<int>(rank) * kHalf);
      }
    }
  }
}

__device__ __forceinline__ void store_matrices(uint32_t to, const uint32_t (&x)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(x[0]),
               "r"(x[1]), "r"(x[2]), "r"(x[3])
               : "memory");
}
__device__ __forceinline__ float2 unpack_bf16(uint32_t pair) {
  return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&pair));
}

// Word t of each of four neighbouring Philox blocks, for lanes 4 g + t: each computes one block.
__device__ __forceinline__ void dropout_words(const DropoutArgs& dropout, uint64_t first_block,
                                              int t, uint32_t (&word)[4]) {
  const uint4 block = philox_block(dropout, first_block + t);
  uint32_t x[4] = {block.x, block.y, block.z, block.w};
#pragma unroll
  for (int distance = 1; distance <= 2; distance *= 2) {  // transposes 4 x 4
    const bool upper = t & distance;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i & distance) continue;
      const uint32_t got = __shfl_xor_sync(0xffffffffu, upper ? x[i] : x[i + distance], distance);
      (upper ? x[i] : x[i + distance]) = got;
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) word[i] = x[i];
}
// Both elements' factors of a word.
__device__ __forceinline__ float2 factors_of_word(const DropoutArgs& dropout, uint32_t word) {
  const uint32_t limit = dropout.threshold * 65536u - 1;  // as factors_of_words compares
  return {word << 16 > limit ? dropout.scale : 0.0f, word > limit ? dropout.scale : 0.0f};
}

// Of 2 * Half sums, a lane keeps one half and adds the same half of its partner.
template <int Half>
__device__ __forceinline__ void halve_sums(float (&sum)[8], int lane) {
  const bool upper = lane & 4 * Half;
#pragma unroll
  for (int i = 0; i < Half; ++i) {
    const float sent = upper ? sum[i] : sum[i + Half], kept = upper ? sum[i + Half] : sum[i];
    sum[i] = kept + __shfl_xor_sync(0xffffffffu, sent, 4 * Half);
  }
}
// Sums over the eight lanes 4 g + t of a t; lane 4 g + t gets the total of sum[g].
__device__ __forceinline__ float sum_columns(float (&sum)[8], int lane) {
  halve_sums<4>(sum, lane);
  halve_sums<2>(sum, lane);
  halve_sums<1>(sum, lane);
  return sum[0];
}

// In order with what else is volatile: the sums of a tile in half as many registers.
__device__ __forceinline__ uint32_t round_pair(float low, float high) {
  uint32_t pair;
  asm volatile("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

template <Pass pass, Activation kind, bool kDropping, bool BRows, int Columns>
__device__ __forceinline__ void consume(const Problem& p, const Room<Layout<pass, Columns>>& room,
                                        const CUtensorMap& c_map, const CUtensorMap& argument_map) {
  using L = Layout<pass, Columns>;
  const int clusters = gridDim.x / kBlocks, tiles = p.row_tiles * p.column_tiles;
  const auto rank = block_in_cluster();
  const int depth = (p.k + kDepth - 1) / kDepth;
  const int group = uniform(static_cast<int>(threadIdx.x) / kWarpgroup) - 1;
  const int warp = uniform(static_cast<int>(threadIdx.x) / 32) - 4;
  const int lane = static_cast<int>(threadIdx.x) % 32, t = lane % 4;
  // This lane's row of eight in a box, for ldmatrix and stmatrix; pieces of 16 bytes by xor.
  const uint32_t place = MmaTile<64>::offset(lane % 16, lane / 16);
  constexpr int kSteps = 2 * Columns / 64;  // boxes of a warp in a tile
  uint32_t boxes = 0;                       // steps of this warp so far
  if (group == 1) arrive_threads(1, kConsumers * kWarpgroup);

  for (int count = group;; count += kConsumers) {
    const int number = static_cast<int>(blockIdx.x) / kBlocks + count * clusters;
    if (number >= tiles) break;
    const Tile tile(p, number, Columns);
    const int row = tile.row + static_cast<int>(rank) * kRows + warp % 4 * 16;
    const auto load_argument = [&](int step) {
      const uint32_t i = (boxes + step) % L::kBoxes;
      arrive_expecting(room.box_full(warp, i), kBoxBytes);
      load_box(room.box(warp, i), argument_map, room.box_full(warp, i), tile.column + step / 2 * 64,
               0, row + step % 2 * 64);
    };
    if constexpr (pass == Pass::backward) {
      if (lane == 0) {
        wait_writes_read<0>();
#pragma unroll
        for (int step = 0; step < L::kBoxes; ++step) load_argument(step);
      }
      __syncwarp();
    }

    // Two places, as warps of the tile before may still read theirs.
    const uint32_t bias = room.base + L::kBiasAt + (count % 4) * (Columns * 2);
    for (int i = static_cast<int>(threadIdx.x) % kWarpgroup; i < Columns / 2; i += kWarpgroup) {
      const int column = tile.column + 2 * i;
      store_shared(bias + 4 * i, p.bias && column < p.n
                                     ? __ldg(reinterpret_cast<const uint32_t*>(p.bias + column))
                                     : 0);
    }

    SumsOf<Columns> c[2];
    uint32_t fill = static_cast<uint32_t>(count) * depth;
    const auto release = [&](uint32_t stage) {
      __syncwarp();
      if (lane < kBlocks) arrive_in(lane, room.empty(stage));
    };
    sync_threads(1 + group, kConsumers * kWarpgroup);  // the other warpgroup has issued its tile
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
      const uint32_t stage = fill % L::kStages;
      wait_barrier(room.full(stage), fill / L::kStages % 2);
      const uint32_t a = describe(in_block(room.a(stage))),
                     b = describe(in_block(room.b(stage)), BRows ? kDepth * 128 : 16);
      wgmma_begin();
#pragma unroll
      for (int k = 0; k < kDepth / 16; ++k)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          multiply<false, BRows>(c[half], a + half * (64 * 128 / 16) + k * 2,
                                 b + k * (BRows ? 16 * 128 / 16 : 2), true);
      wgmma_commit();
      if (step > 0) {
        wgmma_wait<1>();
        release((fill - 1) % L::kStages);
      }
    }
    if (number + clusters < tiles) arrive_threads(2 - group, kConsumers * kWarpgroup);
    wgmma_wait<0>();
    pin(c[0]);
    pin(c[1]);
    release((fill - 1) % L::kStages);

    // As a GEMM on its own rounds it. v[..][n][i]: rows g + 8 i.
    uint32_t v[2][Columns / 8][2];
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int n = 0; n < Columns / 8; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          v[half][n][i] = round_pair(c[half][n][2 * i], c[half][n][2 * i + 1]);

    // Of columns 8 n + 2 t and the next of a panel.
    const auto bias_of = [&](int panel, int n) {
      uint32_t pair;
      asm volatile("ld.shared.u32 %0, [%1];"
                   : "=r"(pair)
                   : "r"(bias + (panel * 64 + n * 8 + 2 * t) * 2)
                   : "memory");
      return unpack_bf16(pair);
    };
    // For n .. n + 3 of a box, and rows g and g + 8.
    const auto mask_of = [&](int panel, int half, int n, uint32_t(&mask)[2][4]) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint64_t line = row + half * 64 + lane / 4 + 8 * i;
        dropout_words(p.dropout, line * (p.n / 8) + tile.column / 8 + panel * 8 + n, t, mask[i]);
      }
    };
    if constexpr (pass == Pass::forward) {
#pragma unroll
      for (int panel = 0; panel < Columns / 64; ++panel) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const uint32_t first = boxes++ % 2 * 2;
          if (lane == 0) wait_writes_read<1>();
          __syncwarp();
          const uint32_t argument = room.box(warp, first), result = room.box(warp, first + 1);
          uint32_t mask[2][4];
#pragma unroll
          for (int n = 0; n < 8; n += 2) {
            if constexpr (kDropping)
              if (n % 4 == 0) mask_of(panel, half, n, mask);
            uint32_t x[4], y[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              const float2 added = bias_of(panel, n + i / 2);
              x[i] = v[half][panel * 8 + n + i / 2][i % 2];
              const float2 rounded = unpack_bf16(x[i]);
              float low = activate<bf16, kind>(rounded.x + added.x),
                    high = activate<bf16, kind>(rounded.y + added.y);
              if constexpr (kDropping) {
                const float2 factor = factors_of_word(p.dropout, mask[i % 2][n % 4 + i / 2]);
                low *= factor.x;
                high *= factor.y;
              }
              y[i] = pack_bf16(low, high);
            }
            if (kind == Activation::gelu) store_matrices((argument + place) ^ 16u * n, x);
            store_matrices((result + place) ^ 16u * n, y);
          }
          wgmma_publish();
          __syncwarp();
          if (lane == 0) {
            if (kind == Activation::gelu && p.writes_argument)
              store_box(argument_map, argument, tile.column + panel * 64, 0, row + half * 64);
            store_box(c_map, result, tile.column + panel * 64, 0, row + half * 64);
            commit_writes();
          }
        }
      }
    } else {
      const uint32_t sums = room.base + L::kSumsAt + group * (8 * Columns * sizeof(float));
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const int panel = step / 2, half = step % 2;
        const uint32_t i = (boxes + step) % L::kBoxes, box = room.box(warp, i);
        wait_barrier(room.box_full(warp, i), (boxes + step) / L::kBoxes % 2);
#pragma unroll
        for (int four = 0; four < 8; four += 4) {
          float sum[8];
#pragma unroll
          for (int j = 0; j < 8; ++j) sum[j] = 0;
          uint32_t mask[2][4];
          if constexpr (kDropping) mask_of(panel, half, four, mask);
#pragma unroll
          for (int n = four; n < four + 4; n += 2) {
            const uint32_t at = (box + place) ^ 16u * n;
            const Quad x = load_matrices(at);
            uint32_t y[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) {
              const int m = n + j / 2;
              const float2 argument = unpack_bf16(x.x[j]), added = bias_of(panel, m);
              float2 dy = unpack_bf16(v[half][panel * 8 + m][j % 2]);
              if constexpr (kDropping) {
                const float2 factor = factors_of_word(p.dropout, mask[j % 2][m - four]);
                dy.x *= factor.x;
                dy.y *= factor.y;
              }
              const float low = activation_gradient<bf16, kind>(argument.x + added.x, dy.x),
                          high = activation_gradient<bf16, kind>(argument.y + added.y, dy.y);
              sum[2 * (m - four)] += low;
              sum[2 * (m - four) + 1] += high;
              y[j] = pack_bf16(low, high);
            }
            store_matrices(at, y);
          }
          if (p.sums) {
            const float total = sum_columns(sum, lane);
            const int column = panel * 64 + (four + lane / 8) * 8 + 2 * t + lane / 4 % 2;
            asm volatile("st.shared.f32 [%0], %1;" ::"r"(
                             sums + ((half * 4 + warp % 4) * Columns + column) * 4),
                         "f"(total)
                         : "memory");
          }
        }
        wgmma_publish();
        __syncwarp();
        if (lane == 0) {
          if (step > 0 && step + L::kBoxes - 1 < kSteps) {
            wait_writes_read<0>();
            load_argument(step + L::kBoxes - 1);
          }
          store_box(c_map, box, tile.column + panel * 64, 0, row + half * 64);
          commit_writes();
        }
      }
      boxes += kSteps;
      if (p.sums) {
        sync_threads(3 + group, kWarpgroup);
        const int first_row = tile.row + static_cast<int>(rank) * kRows;
        for (int i = static_cast<int>(threadIdx.x) % kWarpgroup; i < Columns; i += kWarpgroup) {
          float total = 0;
#pragma unroll
          for (int w = 0; w < 8; ++w) {
            float part;
            asm volatile("ld.shared.f32 %0, [%1];"
                         : "=f"(part)
                         : "r"(sums + (w * Columns + i) * 4)
                         : "memory");
            total += part;
          }
          if (first_row < p.m && tile.column + i < p.n)
            p.sums[static_cast<int64_t>(first_row / kRows) * p.n + tile.column + i] = total;
        }
      }
    }
  }
  if (lane == 0) wait_writes();
}

#endif  // TRAFO_HAS_WGMMA

template <Pass pass, Activation kind, bool kDropping, bool BRows, int Columns>
__global__ void __launch_bounds__(kThreads, 1)
    activation_gemm_kernel(Problem p, const __grid_constant__ CUtensorMap a_map,
                           const __grid_constant__ CUtensorMap b_map,
                           const __grid_constant__ CUtensorMap c_map,
                           const __grid_constant__ CUtensorMap argument_map) {
#ifdef TRAFO_HAS_WGMMA
  using L = Layout<pass, Columns>;
  extern __shared__ __align__(1024) unsigned char shared[];
  const Room<L> room{shared_address(shared)};
  if (threadIdx.x == 0) {
    for (uint32_t stage = 0; stage < L::kStages; ++stage) {
      init_barrier(room.full(stage), 1);
      init_barrier(room.empty(stage), 4 * kBlocks);
    }
    for (int warp = 0; warp < 4 * kConsumers; ++warp)
      for (uint32_t i = 0; i < L::kBoxes; ++i) init_barrier(room.box_full(warp, i), 1);
    publish_barriers();
  }
  __syncthreads();
  sync_cluster();
  if (uniform(static_cast<int>(threadIdx.x) / kWarpgroup) == 0) {
    leave_registers<kProducerRegisters>();
    if (threadIdx.x == 0) produce<L, BRows, Columns>(p, room, a_map, b_map);
    __syncwarp();
  } else {
    take_registers<kConsumerRegisters>();
    consume<pass, kind, kDropping, BRows, Columns>(p, room, c_map, argument_map);
    __syncwarp();
  }
  sync_cluster();  // the other block may still bring B here, and wait for this one's arrivals
#endif
}

#ifdef TRAFO_CUDA_90A
constexpr bool kHasKernels = true;
#else
constexpr bool kHasKernels = false;  // the kernels of this file have no body
#endif

constexpr int kColumns = 192;
// Column tiles that are done for a row tile before the next: their part of B stays in the cache.
constexpr int kMostGroup = 16;

template <Pass pass, Activation kind, bool kDropping>
int32_t run(DeviceState& device, const GemmParams& g, Problem p, bool& taken) {
  using L = Layout<pass, kColumns>;
  constexpr bool kBRows = pass == Pass::backward;
  CUtensorMap a_map, b_map, c_map, argument_map;
  taken = make_tensor_map(a_map, g.a, g.lda, g.m, 1, g.k, kRows) &&
          (kBRows ? make_tensor_map(b_map, g.b, g.ldb, g.k, 1, g.n, kDepth / kBlocks)
                  : make_tensor_map(b_map, g.b, g.ldb, g.n, 1, g.k, kColumns / kBlocks)) &&
          make_tensor_map(c_map, g.c, g.n, g.m, 1, g.n, 16) &&
          make_tensor_map(argument_map, g.aux ? g.aux : g.c, g.n, g.m, 1, g.n, 16);
  if (!taken) return kSuccess;
  const auto kernel = activation_gemm_kernel<pass, kind, kDropping, kBRows, kColumns>;
  const cudaError_t raised =
      raise_shared_memory(device, reinterpret_cast<const void*>(kernel), L::kBytes);
  if (raised != cudaSuccess) return report(device, raised, "activation_gemm");
  const int clusters = std::min(device.multiprocessors / kBlocks, p.row_tiles * p.column_tiles);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(clusters * kBlocks));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = L::kBytes;
  config.stream = device.stream;
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = kBlocks;
  cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  config.attrs = &cluster;
  config.numAttrs = 1;
  cudaLaunchKernelEx(&config, kernel, p, a_map, b_map, c_map, argument_map);
  return launched(device, "activation_gemm");
}

}  // namespace

int32_t activation_gemm_wgmma(DeviceState& device, const GemmParams& g, bool& taken) {
  const bool backward = g.epilogue == Epilogue::drelu || g.epilogue == Epilogue::dgelu;
  const bool relu = g.epilogue == Epilogue::relu || g.epilogue == Epilogue::drelu;
  const int64_t row_tiles = (g.m + kBlocks * kRows - 1) / (kBlocks * kRows),
                column_tiles = (g.n + kColumns - 1) / kColumns;
  // A tile for every multiprocessor, and whole pieces of 16 bytes. ReLU's argument is not kept.
  const bool fits =
      kHasKernels && !g.trans_a && g.trans_b != backward && (backward || !relu || !g.aux) &&
      g.k > 0 && (g.n | g.k | g.lda | g.ldb) % 8 == 0 && aligned16(g.a) && aligned16(g.b) &&
      aligned16(g.c) && aligned16(g.aux) && aligned16(g.bias) &&
      row_tiles * column_tiles >= device.multiprocessors && row_tiles * column_tiles < 1 << 20;
  if (!fits) return kSuccess;
  Problem p{};
  p.m = static_cast<int>(g.m);
  p.n = static_cast<int>(g.n);
  p.k = static_cast<int>(g.k);
  p.row_tiles = static_cast<int>(row_tiles);
  p.column_tiles = static_cast<int>(column_tiles);
  const int parts = (p.column_tiles + kMostGroup - 1) / kMostGroup;
  p.group = (p.column_tiles + parts - 1) / parts;
  p.bias = static_cast<const bf16*>(g.bias);
  p.writes_argument = g.aux != nullptr;
  p.dropout = DropoutArgs::of(device, g.dropout);
  const int64_t sum_rows = row_tiles * kBlocks;
  if (g.column_sums) {
    p.sums =
        static_cast<float*>(device.scratch(static_cast<size_t>(sum_rows * g.n) * sizeof(float)));
    if (!p.sums) return kOutOfMemory;
  }
  const auto choose = [&](auto pass) {
    constexpr Pass kPass = pass();
    const bool dropping = g.dropout.active();
    if (relu && dropping) return run<kPass, Activation::relu, true>(device, g, p, taken);
    if (relu) return run<kPass, Activation::relu, false>(device, g, p, taken);
    if (dropping) return run<kPass, Activation::gelu, true>(device, g, p, taken);
    return run<kPass, Activation::gelu, false>(device, g, p, taken);
  };
  if (!backward) return choose(std::integral_constant<Pass, Pass::forward>{});
  const int32_t result = choose(std::integral_constant<Pass, Pass::backward>{});
  if (result != kSuccess || !taken || !g.column_sums) return result;
  ColumnSums to;
  to.out[0] = static_cast<float*>(g.column_sums);
  to.accumulate[0] = g.accumulate_column_sums;
  return sum_partials(device, p.sums, (g.m + kRows - 1) / kRows, 1, g.n, to);
}

}  // namespace trafo::cuda
