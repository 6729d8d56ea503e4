// C = A B + T_a T_b in bfloat16 for compute capability 9.0, where the term has a sum of at most 64:
// one more step of the sums of a tile, with operands of their own. So C is written once and not
// read.
#include "engine/backend/cuda/device/gemm_wgmma.cuh"
#include "engine/ops/attention/attention_mma.cuh"
#include "engine/ops/low_rank_linear/low_rank_gemm.h"

namespace trafo::cuda {
namespace {

struct Layout : GemmStages<kGemmColumns> {
  static constexpr int kBoxes = 2;  // of a warp: one is filled while the other is read
  static constexpr uint32_t kBoxesAt = kStages * kStageBytes;
  static constexpr uint32_t kBarriersAt = kBoxesAt + 4 * kGemmConsumers * kBoxes * kBoxBytes;
  static constexpr uint32_t kBytes = kBarriersAt + 8 * gemm_barriers(kStages, kBoxes);
  static_assert(kBytes <= kHopperSharedMemory);
};

#ifdef TRAFO_HAS_WGMMA

template <bool BRows, int TermSteps>
__device__ __forceinline__ void consume_tiles(const GemmTiles& tiles, const GemmRoom<Layout>& room,
                                              const CUtensorMap& c_map) {
  const auto rank = static_cast<int>(block_in_cluster());
  const int warp = uniform(static_cast<int>(threadIdx.x) / 32) - 4;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const uint32_t place = MmaTile<64>::offset(lane % 16, lane / 16);
  uint32_t boxes = 0;  // of this warp so far
  const auto begin = [](const GemmTile&, int) {};
  const auto finish = [&](const GemmTile& tile, int, const RoundedTile<kGemmColumns>& v) {
    const int row = tile.row + rank * kGemmRows + warp % 4 * 16;
#pragma unroll
    for (int panel = 0; panel < kGemmColumns / 64; ++panel) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t box = room.box(warp, boxes++ % Layout::kBoxes);
        if (lane == 0) wait_writes_read<Layout::kBoxes - 1>();
        __syncwarp();
#pragma unroll
        for (int n = 0; n < 8; n += 2) {
          uint32_t x[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) x[i] = v[half][panel * 8 + n + i / 2][i % 2];
          store_matrices((box + place) ^ 16u * n, x);
        }
        wgmma_publish();
        __syncwarp();
        if (lane == 0) {
          store_box(c_map, box, tile.column + panel * 64, 0, row + half * 64);
          commit_writes();
        }
      }
    }
  };
  consume<Layout, BRows, kGemmColumns, TermSteps>(tiles, room, begin, finish);
}

#endif  // TRAFO_HAS_WGMMA

template <bool BRows, int TermSteps>
__global__ void __launch_bounds__(kGemmThreads, 1)
    low_rank_gemm_kernel(GemmTiles tiles, const __grid_constant__ CUtensorMap a_map,
                         const __grid_constant__ CUtensorMap b_map,
                         const __grid_constant__ CUtensorMap term_a_map,
                         const __grid_constant__ CUtensorMap term_b_map,
                         const __grid_constant__ CUtensorMap c_map) {
#ifdef TRAFO_HAS_WGMMA
  extern __shared__ __align__(1024) unsigned char shared[];
  const GemmRoom<Layout> room{shared_address(shared)};
  gemm_block(
      room,
      [&] {
        produce<Layout, BRows, kGemmColumns>(tiles, room, a_map, b_map, &term_a_map, &term_b_map);
      },
      [&] { consume_tiles<BRows, TermSteps>(tiles, room, c_map); });
#endif
}

template <bool BRows, int TermSteps>
int32_t run(DeviceState& device, const GemmParams& g, const GemmTiles& tiles, bool& taken) {
  GemmParams term = g;
  term.a = g.term_a;
  term.lda = g.term_lda;
  term.b = g.term_b;
  term.ldb = g.term_ldb;
  term.k = g.term_k;
  CUtensorMap a_map, b_map, term_a_map, term_b_map, c_map;
  taken = map_operands(g, BRows, a_map, b_map) &&
          map_operands(term, BRows, term_a_map, term_b_map) &&
          make_tensor_map(c_map, g.c, g.ldc, g.m, 1, g.n, 16);
  if (!taken) return kSuccess;
  return launch_gemm<Layout>(device, tiles, "low_rank_gemm", low_rank_gemm_kernel<BRows, TermSteps>,
                             tiles, a_map, b_map, term_a_map, term_b_map, c_map);
}

template <bool BRows>
int32_t run_for_rank(DeviceState& device, const GemmParams& g, const GemmTiles& tiles,
                     bool& taken) {
  if (g.term_k <= 16) return run<BRows, 1>(device, g, tiles, taken);
  if (g.term_k <= 32) return run<BRows, 2>(device, g, tiles, taken);
  return run<BRows, 4>(device, g, tiles, taken);
}

}  // namespace

int32_t low_rank_gemm_wgmma(DeviceState& device, const GemmParams& g, bool& taken) {
  GemmTiles tiles{};
  taken = false;
  if (device.compute_major != 9 || g.bias || (g.term_k | g.term_lda | g.term_ldb) % 8 != 0 ||
      g.term_k > kGemmDepth || !aligned16(g.term_a) || !aligned16(g.term_b) ||
      !gemm_tiles(device, g, tiles))
    return kSuccess;
  return g.trans_b ? run_for_rank<false>(device, g, tiles, taken)
                   : run_for_rank<true>(device, g, tiles, taken);
}

}  // namespace trafo::cuda
