// Attention in bfloat16 for compute capability 9.0a: two warpgroups of 64 queries share the tiles
// of keys and values. The two blocks of a multiprocessor work independently, so the exponentials of
// one overlap with the matrix instructions of the other.
#include "engine/ops/attention/attention_wgmma.cuh"

namespace trafo::cuda {
namespace {

constexpr int kQueries = 128, kThreads = 2 * kWarpgroup;

// Queries; two sets of keys and values.
template <int D>
constexpr size_t kSharedBytes = Panels<D, kQueries>::kBytes + 4 * Panels<D, 64>::kBytes;

template <int D, bool Windowed>
__global__ void __launch_bounds__(kThreads, 2)
    wgmma_forward_kernel(AttentionProblem a, int64_t tiles, const bf16* __restrict__ q_all,
                         const bf16* __restrict__ k_all, const bf16* __restrict__ v_all,
                         bf16* __restrict__ out, float* __restrict__ lse) {
#ifdef TRAFO_HAS_WGMMA
  constexpr int kPanels = D / 64;
  // Sums are scaled down only when a maximum has grown by more than this power of two: the results
  // are the same but for rounding, and float32 holds what is summed until then.
  constexpr float kSlack = 6;
  extern __shared__ __align__(1024) unsigned char shared[];
  const uint32_t base = shared_address(shared);
  const Panels<D, kQueries> q_tile{base};

  AttentionItem item = AttentionItem::of_block(a, tiles);
  if (a.causal) item.tile = tiles - 1 - item.tile;  // tiles with most keys first
  const int q0 = static_cast<int>(item.tile) * kQueries;
  if (q0 >= item.queries) return;
  const int queries = min(kQueries, item.queries - q0), width = static_cast<int>(a.head_dim);
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * 16, group_row = warp_row / 64 * 64;
  const int64_t column = item.head * width, kv_column = item.kv_head * width;
  const bf16* k = k_all + item.key * a.k_stride + kv_column;
  const bf16* v = v_all + item.key * a.v_stride + kv_column;

  const int keys_end = item.visible(a, q0 + queries - 1);
  // The warpgroup's own: any of its queries sees keys below, every one sees keys below.
  const int group_end =
      group_row < queries ? item.visible(a, q0 + min(group_row + 64, queries) - 1) : 0;
  const int group_all = item.visible(a, q0 + group_row);
  const int keys_begin = item.first<Windowed>(a, q0) / 64 * 64;
  const int group_begin = item.first<Windowed>(a, q0 + group_row);
  const int group_from =  // every one sees keys from here on
      item.first<Windowed>(a, q0 + min(group_row + 64, queries) - 1);
  const auto tile_of = [&](int k0, int which) {
    return Panels<D, 64>{base + Panels<D, kQueries>::kBytes +
                         static_cast<uint32_t>(k0 / 64 % 2 * 2 + which) * Panels<D, 64>::kBytes};
  };
  const auto copy_keys = [&](int k0) {
    const int keys = min(64, item.keys - k0);
    copy_panels<kThreads>(tile_of(k0, 0), k + k0 * a.k_stride, a.k_stride, keys, width);
    copy_panels<kThreads>(tile_of(k0, 1), v + k0 * a.v_stride, a.v_stride, keys, width);
  };
  copy_panels<kThreads>(q_tile, q_all + (item.query + q0) * a.q_stride + column, a.q_stride,
                        queries, width);
  if (keys_begin < keys_end) copy_keys(keys_begin);
  commit_copies();

  const float scale = a.scale * kLog2e;
  // From the lowest finite number and not -infinity: 2^(-infinity - maximum) is then 0 and not NaN.
  float maximum[2] = {-3.402823466e38f, -3.402823466e38f}, sum[2] = {0, 0};
  Sums gathered[kPanels];
  clear_all(gathered);

  for (int k0 = keys_begin; k0 < keys_end; k0 += 64) {
    wait_copies<0>();
    wgmma_publish();
    __syncthreads();  // the tile is here; nobody reads the one before it any more
    if (k0 + 64 < keys_end) copy_keys(k0 + 64);
    commit_copies();
    if (k0 >= group_end || (Windowed && k0 + 64 <= group_begin)) continue;

    Sums s;
    wgmma_begin();
    multiply_tiles<D, kQueries>(s, q_tile, group_row, tile_of(k0, 0));
    wgmma_commit();
    wgmma_wait<0>();
    pin(s);

    const bool masked = k0 + 64 > group_all;
    float high[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (masked) {
        const int visible = item.visible(a, q0 + warp_row + g + 8 * half) - k0;
#pragma unroll
        for (int n = 0; n < 8; ++n)
#pragma unroll
          for (int e = 0; e < 2; ++e)
            if (8 * n + 2 * t + e >= visible) s[n][2 * half + e] = -INFINITY;
      }
      if (Windowed && k0 < group_from) {
        const int first = item.first(a, q0 + warp_row + g + 8 * half) - k0;
#pragma unroll
        for (int n = 0; n < 8; ++n)
#pragma unroll
          for (int e = 0; e < 2; ++e)
            if (8 * n + 2 * t + e < first) s[n][2 * half + e] = -INFINITY;
      }
      float most = -INFINITY;
#pragma unroll
      for (int n = 0; n < 8; ++n) most = fmaxf(most, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
      high[half] = fmaxf(maximum[half], most * scale);  // scale > 0
    }
    const bool grown = high[0] > maximum[0] + kSlack || high[1] > maximum[1] + kSlack;
    if (__any_sync(0xffffffffu, grown)) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float shrink = fast_exp2(maximum[half] - high[half]);
        maximum[half] = high[half];
        sum[half] *= shrink;
#pragma unroll
        for (int panel = 0; panel < kPanels; ++panel)
#pragma unroll
          for (int n = 0; n < 8; ++n) {
            gathered[panel][n][2 * half] *= shrink;
            gathered[panel][n][2 * half + 1] *= shrink;
          }
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float part = 0;  // this lane's: the four are added at the end
#pragma unroll
      for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& score = s[n][2 * half + e];
          score = fast_exp2(fmaf(score, scale, -maximum[half]));
          part += score;
        }
      sum[half] += part;
    }
    Quad left[4];
#pragma unroll
    for (int kk = 0; kk < 4; ++kk) left[kk] = as_left(s[2 * kk], s[2 * kk + 1]);
    pin_all(gathered);
    wgmma_begin();
    multiply_add_tiles<D>(gathered, left, tile_of(k0, 1));
    wgmma_commit();
    wgmma_wait<0>();
    pin_all(gathered);
  }
  wait_copies<0>();
  __syncthreads();  // the queries' tile is free for the result, copies or not

  const int64_t out_stride = a.heads * width;
  float normalise[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float total = sum[half];
    total += __shfl_xor_sync(0xffffffffu, total, 1);
    total += __shfl_xor_sync(0xffffffffu, total, 2);
    const bool empty = total == 0;  // a sum that is NaN must reach the output
    normalise[half] = empty ? 0.0f : 1.0f / total;
    const int row = warp_row + g + 8 * half;
    if (lse && t == 0 && row < queries)
      lse[(item.query + q0 + row) * a.heads + item.head] =
          empty ? 0.0f : maximum[half] * kLn2 + logf(total);
  }
#pragma unroll
  for (int panel = 0; panel < kPanels; ++panel)
    store_rows<64>(MmaTile<64>{base + panel * Panels<D, kQueries>::kPanelBytes}, warp_row,
                   gathered[panel], normalise[0], normalise[1],
                   out + (item.query + q0) * out_stride + column + 64 * panel, out_stride, queries,
                   width - 64 * panel, false);
#endif
}

template <int D>
int32_t run_forward(DeviceState& device, const AttentionForwardParams& p) {
  static_assert(kSharedBytes<D> <= kHopperSharedMemory);
  const int64_t tiles = (p.max_queries + kQueries - 1) / kQueries;
  return with_window(p.window, [&](auto windowed) {
    return launch_attention(device, "attention_forward", wgmma_forward_kernel<D, windowed()>,
                            p.sequences * p.heads * tiles, kThreads, kSharedBytes<D>,
                            AttentionProblem::of(device, p), tiles, static_cast<const bf16*>(p.q),
                            static_cast<const bf16*>(p.k), static_cast<const bf16*>(p.v),
                            static_cast<bf16*>(p.out), static_cast<float*>(p.lse));
  });
}

}  // namespace

bool attention_has_wgmma() {
#ifdef TRAFO_CUDA_90A
  return true;
#else
  return false;
#endif
}

int32_t attention_forward_wgmma(DeviceState& device, const AttentionForwardParams& p) {
  return p.head_dim <= 64 ? run_forward<64>(device, p) : run_forward<128>(device, p);
}

}  // namespace trafo::cuda
