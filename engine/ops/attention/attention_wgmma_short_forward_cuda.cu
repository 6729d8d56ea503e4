// Attention in bfloat16 for compute capability 9.0a, sequences of up to 128 queries and keys. A
// block is one warpgroup and holds all queries and keys of a head. It loads them by TMA at once, so
// softmax needs no rescaling. Four blocks share a multiprocessor: the loads of some overlap with
// the arithmetic of the others.
#include "engine/ops/attention/attention_wgmma_pipeline.cuh"

namespace trafo::cuda {
namespace {

constexpr int kWidth = 64;  // columns of a head there is room for
constexpr int kRows = kWgmmaShortRows;
constexpr int kBlocksPerMultiprocessor = 4;

using Tile = Panels<kWidth, kRows>;
using HalfTile = Panels<kWidth, 64>;
// Queries, which make room for the results; keys; values; barriers.
constexpr uint32_t kBarriers = 3 * Tile::kBytes;
constexpr size_t kSharedBytes = kBarriers + 2 * 8;
static_assert(kSharedBytes <= kHopperSharedMemory / kBlocksPerMultiprocessor);

struct Maps {
  CUtensorMap q, k, v;
};

#ifdef TRAFO_HAS_WGMMA

__device__ constexpr int halves(int rows) {
  return (rows + 63) / 64;
}

// 64 queries, from `first` on, which see none but the first Keys keys. `await_values` returns when
// the values are there.
template <int Keys, class Await>
__device__ __forceinline__ void attend(const AttentionProblem& a, const AttentionItem& item,
                                       const Tile& queries, const Panels<kWidth, Keys>& keys,
                                       const Panels<kWidth, Keys>& values, int first, bf16* out,
                                       float* lse, Await&& await_values) {
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  const int warp_row = first + static_cast<int>(threadIdx.x) / 32 * 16;
  const float scale = a.scale * kLog2e;
  SumsOf<Keys> s;
  wgmma_begin();
  multiply_tiles(s, queries, first, keys);
  wgmma_commit();
  wgmma_wait<0>();
  pin(s);

  float normalise[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = warp_row + g + 8 * half, visible = item.visible(a, row) - 2 * t;
    // From the lowest finite number and not -infinity: 2^(-infinity - high) is then 0 and not NaN.
    float high = -3.402823466e38f;
#pragma unroll
    for (int n = 0; n < Keys / 8; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& score = s[n][2 * half + e];
        if (8 * n + e >= visible) score = -INFINITY;
        high = fmaxf(high, score * scale);
      }
    high = fmaxf(high, __shfl_xor_sync(0xffffffffu, high, 1));
    high = fmaxf(high, __shfl_xor_sync(0xffffffffu, high, 2));
    float part[2] = {0, 0};
#pragma unroll
    for (int n = 0; n < Keys / 8; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& score = s[n][2 * half + e];
        score = fast_exp2(fmaf(score, scale, -high));
        part[e] += score;
      }
    float total = part[0] + part[1];
    total += __shfl_xor_sync(0xffffffffu, total, 1);
    total += __shfl_xor_sync(0xffffffffu, total, 2);
    const bool empty = total == 0;  // a sum that is NaN must reach the output
    normalise[half] = empty ? 0.0f : 1.0f / total;
    if (lse && t == 0 && row < item.queries)
      lse[(item.query + row) * a.heads + item.head] = empty ? 0.0f : high * kLn2 + logf(total);
  }
  Quad left[Keys / 16];
#pragma unroll
  for (int k = 0; k < Keys / 16; ++k) left[k] = as_left(s[2 * k], s[2 * k + 1]);
  Sums gathered;
#pragma unroll
  for (int n = 0; n < kWidth / 8; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) gathered[n][e] = 0;
  await_values();
  pin(gathered);
  wgmma_begin();
  multiply_add_tile(gathered, left, values);
  wgmma_commit();
  wgmma_wait<0>();
  pin(gathered);
  __syncthreads();  // all warps have read these queries

  const int64_t out_stride = a.heads * a.head_dim;
  store_rows<kWidth>(MmaTile<kWidth>{queries.base}, warp_row, gathered, normalise[0], normalise[1],
                     out + item.query * out_stride + item.head * a.head_dim, out_stride,
                     item.queries, static_cast<int>(a.head_dim), false);
}

#endif  // TRAFO_HAS_WGMMA

__global__ void __launch_bounds__(kWarpgroup, kBlocksPerMultiprocessor)
    wgmma_short_forward_kernel(AttentionProblem a, const __grid_constant__ Maps maps, bf16* out,
                               float* lse) {
#ifdef TRAFO_HAS_WGMMA
  extern __shared__ __align__(1024) unsigned char shared[];
  const uint32_t base = shared_address(shared);
  const Tile queries{base}, keys{base + Tile::kBytes}, values{base + 2 * Tile::kBytes};
  const uint32_t scores_full = base + kBarriers, values_full = scores_full + 8;
  const AttentionItem item = AttentionItem::of_short_block(a, kRows);
  if (item.queries == 0) return;

  if (threadIdx.x == 0) {
    init_barrier(scores_full, 1);
    init_barrier(values_full, 1);
    publish_barriers();
    const int query_halves = halves(item.queries), key_halves = halves(item.keys);
    const auto load = [&](const Tile& tile, const CUtensorMap& map, uint32_t barrier, int count,
                          int64_t head, int64_t row) {
      for (int half = 0; half < count; ++half)
        load_box(tile.base + static_cast<uint32_t>(half) * HalfTile::kBytes, map, barrier, 0,
                 static_cast<int>(head), static_cast<int>(row) + 64 * half);
    };
    arrive_expecting(scores_full,
                     static_cast<uint32_t>(query_halves + key_halves) * HalfTile::kBytes);
    load(queries, maps.q, scores_full, query_halves, item.head, item.query);
    load(keys, maps.k, scores_full, key_halves, item.kv_head, item.key);
    arrive_expecting(values_full, static_cast<uint32_t>(key_halves) * HalfTile::kBytes);
    load(values, maps.v, values_full, key_halves, item.kv_head, item.key);
  }
  __syncthreads();
  wait_barrier(scores_full, 0);

  bool cleared = false;
  const auto await_values = [&] {
    wait_barrier(values_full, 0);
    if (cleared || item.keys == kRows) return;
    // Rows after the last key may hold NaN, and 0 * NaN is not 0.
    clear_rows(values, item.keys, static_cast<int>(threadIdx.x));
    wgmma_publish();
    __syncthreads();
    cleared = true;
  };
  for (int first = 0; first < item.queries; first += 64) {
    if (item.visible(a, min(first + 64, item.queries) - 1) <= 64)
      attend<64>(a, item, queries, HalfTile{keys.base}, HalfTile{values.base}, first, out, lse,
                 await_values);
    else
      attend<kRows>(a, item, queries, keys, values, first, out, lse, await_values);
  }
#endif
}

}  // namespace

int32_t attention_forward_wgmma_short(DeviceState& device, const AttentionForwardParams& p,
                                      bool& taken) {
  Maps maps;
  taken = make_tensor_map(maps.q, p.q, p.q_stride, p.query_rows, p.heads, p.head_dim, 64) &&
          make_tensor_map(maps.k, p.k, p.k_stride, p.key_rows, p.kv_heads, p.head_dim, 64) &&
          make_tensor_map(maps.v, p.v, p.v_stride, p.key_rows, p.kv_heads, p.head_dim, 64);
  if (!taken) return kSuccess;
  return launch_attention(device, "attention_forward", wgmma_short_forward_kernel,
                          p.sequences * p.heads, kWarpgroup, kSharedBytes,
                          AttentionProblem::of(device, p), maps, static_cast<bf16*>(p.out),
                          static_cast<float*>(p.lse));
}

}  // namespace trafo::cuda
