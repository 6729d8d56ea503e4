// GEMM of bfloat16 for compute capability 9.0 whose results pass through GELU, or are multiplied
// with its derivative, before they are written.
#include "engine/backend/cuda/device/gemm_wgmma.cuh"
#include "engine/backend/cuda/device/philox.cuh"
#include "engine/backend/cuda/device/rows.cuh"
#include "engine/ops/activation/activation.cuh"
#include "engine/ops/attention/attention_mma.cuh"
#include "engine/ops/feed_forward/activation_gemm.h"

namespace trafo::cuda {
namespace {

enum class Pass {
  forward,  // argument = A B, C = dropout(act(argument + bias))
  backward  // C = dropout(A B) act'(argument + bias), and sums of columns over the rows of a tile
};

template <Pass pass, int Columns>
struct Layout : GemmStages<Columns> {
  using Stages = GemmStages<Columns>;
  static constexpr int kBoxes = pass == Pass::forward ? 4 : 3;  // of a warp
  static constexpr uint32_t kBoxesAt = Stages::kStages * Stages::kStageBytes;
  static constexpr uint32_t kSumsAt = kBoxesAt + 4 * kGemmConsumers * kBoxes * kBoxBytes;
  static constexpr uint32_t kSumsBytes =
      pass == Pass::forward ? 0 : kGemmConsumers * 8 * Columns * sizeof(float);
  static constexpr uint32_t kBiasAt = kSumsAt + kSumsBytes;
  static constexpr uint32_t kBarriersAt = kBiasAt + 2 * kGemmConsumers * Columns * 2;
  static constexpr uint32_t kBytes = kBarriersAt + 8 * gemm_barriers(Stages::kStages, kBoxes);
  static_assert(kBytes <= kHopperSharedMemory);
};

struct Problem {
  GemmTiles tiles;
  const bf16* bias;      // or null
  bool writes_argument;  // forward
  float* sums;           // backward: [row tiles of blocks, n], or null
  DropoutArgs dropout;
};

#ifdef TRAFO_HAS_WGMMA

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

template <Pass pass, Activation kind, bool kDropping, bool BRows, int Columns>
__device__ __forceinline__ void consume_tiles(const Problem& p,
                                              const GemmRoom<Layout<pass, Columns>>& room,
                                              const CUtensorMap& c_map,
                                              const CUtensorMap& argument_map) {
  using L = Layout<pass, Columns>;
  const auto rank = static_cast<int>(block_in_cluster());
  const int group = uniform(static_cast<int>(threadIdx.x) / kWarpgroup) - 1;
  const int warp = uniform(static_cast<int>(threadIdx.x) / 32) - 4;
  const int lane = static_cast<int>(threadIdx.x) % 32, t = lane % 4;
  // This lane's row of eight in a box, for ldmatrix and stmatrix; pieces of 16 bytes by xor.
  const uint32_t place = MmaTile<64>::offset(lane % 16, lane / 16);
  constexpr int kSteps = 2 * Columns / 64;  // boxes of a warp in a tile
  uint32_t boxes = 0;                       // steps of this warp so far
  const auto row_of = [&](const GemmTile& tile) {
    return tile.row + rank * kGemmRows + warp % 4 * 16;
  };
  const auto load_argument = [&](const GemmTile& tile, int step) {
    const uint32_t i = (boxes + step) % L::kBoxes;
    arrive_expecting(room.box_full(warp, i), kBoxBytes);
    load_box(room.box(warp, i), argument_map, room.box_full(warp, i), tile.column + step / 2 * 64,
             0, row_of(tile) + step % 2 * 64);
  };
  // Two places, as warps of the tile before may still read theirs.
  const auto bias_place = [&](int count) {
    return room.base + L::kBiasAt + (count % 4) * (Columns * 2);
  };

  const auto begin = [&](const GemmTile& tile, int count) {
    if constexpr (pass == Pass::backward) {
      if (lane == 0) {
        wait_writes_read<0>();
#pragma unroll
        for (int step = 0; step < L::kBoxes; ++step) load_argument(tile, step);
      }
      __syncwarp();
    }
    const uint32_t bias = bias_place(count);
    for (int i = static_cast<int>(threadIdx.x) % kWarpgroup; i < Columns / 2; i += kWarpgroup) {
      const int column = tile.column + 2 * i;
      store_shared(bias + 4 * i, p.bias && column < p.tiles.n
                                     ? __ldg(reinterpret_cast<const uint32_t*>(p.bias + column))
                                     : 0);
    }
  };

  const auto finish = [&](const GemmTile& tile, int count, const RoundedTile<Columns>& v) {
    const int row = row_of(tile);
    const uint32_t bias = bias_place(count);
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
        dropout_words(p.dropout, line * (p.tiles.n / 8) + tile.column / 8 + panel * 8 + n, t,
                      mask[i]);
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
            load_argument(tile, step + L::kBoxes - 1);
          }
          store_box(c_map, box, tile.column + panel * 64, 0, row + half * 64);
          commit_writes();
        }
      }
      boxes += kSteps;
      if (p.sums) {
        sync_threads(3 + group, kWarpgroup);
        const int first_row = tile.row + rank * kGemmRows;
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
          if (first_row < p.tiles.m && tile.column + i < p.tiles.n)
            p.sums[static_cast<int64_t>(first_row / kGemmRows) * p.tiles.n + tile.column + i] =
                total;
        }
      }
    }
  };
  consume<L, BRows, Columns, 0>(p.tiles, room, begin, finish);
}

#endif  // TRAFO_HAS_WGMMA

template <Pass pass, Activation kind, bool kDropping, bool BRows, int Columns>
__global__ void __launch_bounds__(kGemmThreads, 1)
    activation_gemm_kernel(Problem p, const __grid_constant__ CUtensorMap a_map,
                           const __grid_constant__ CUtensorMap b_map,
                           const __grid_constant__ CUtensorMap c_map,
                           const __grid_constant__ CUtensorMap argument_map) {
#ifdef TRAFO_HAS_WGMMA
  using L = Layout<pass, Columns>;
  extern __shared__ __align__(1024) unsigned char shared[];
  const GemmRoom<L> room{shared_address(shared)};
  gemm_block(
      room, [&] { produce<L, BRows, Columns>(p.tiles, room, a_map, b_map, nullptr, nullptr); },
      [&] { consume_tiles<pass, kind, kDropping, BRows, Columns>(p, room, c_map, argument_map); });
#endif
}

template <Pass pass, Activation kind, bool kDropping>
int32_t run(DeviceState& device, const GemmParams& g, const Problem& p, bool& taken) {
  constexpr bool kBRows = pass == Pass::backward;
  CUtensorMap a_map, b_map, c_map, argument_map;
  taken = map_operands(g, kBRows, a_map, b_map) &&
          make_tensor_map(c_map, g.c, g.n, g.m, 1, g.n, 16) &&
          make_tensor_map(argument_map, g.aux ? g.aux : g.c, g.n, g.m, 1, g.n, 16);
  if (!taken) return kSuccess;
  return launch_gemm<Layout<pass, kGemmColumns>>(
      device, p.tiles, "activation_gemm",
      activation_gemm_kernel<pass, kind, kDropping, kBRows, kGemmColumns>, p, a_map, b_map, c_map,
      argument_map);
}

}  // namespace

int32_t activation_gemm_wgmma(DeviceState& device, const GemmParams& g, bool& taken) {
  const bool backward = g.epilogue == Epilogue::drelu || g.epilogue == Epilogue::dgelu;
  const bool relu = g.epilogue == Epilogue::relu || g.epilogue == Epilogue::drelu;
  Problem p{};
  // ReLU's argument is not kept.
  const bool fits = g.trans_b != backward && (backward || !relu || !g.aux) && aligned16(g.aux) &&
                    aligned16(g.bias) && gemm_tiles(device, g, p.tiles);
  if (!fits) return kSuccess;
  p.bias = static_cast<const bf16*>(g.bias);
  p.writes_argument = g.aux != nullptr;
  p.dropout = DropoutArgs::of(device, g.dropout);
  const int64_t sum_rows = int64_t{p.tiles.row_tiles} * kGemmBlocks;
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
  return sum_partials(device, p.sums, (g.m + kGemmRows - 1) / kGemmRows, 1, g.n, to);
}

}  // namespace trafo::cuda
