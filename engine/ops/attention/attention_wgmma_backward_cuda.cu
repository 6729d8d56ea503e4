// Backward of attention in bfloat16 for compute capability 9.0a, in the two passes of
// attention_mma_backward_cuda.cu: keys' and queries' gradients by separate kernels, no atomics. The
// blocks of a multiprocessor work independently, so the exponentials of one overlap with the matrix
// instructions of another.
#include "engine/ops/attention/attention_wgmma.cuh"

namespace trafo::cuda {
namespace {

// Own rows of a block: 64 for each warpgroup. Blocks to a multiprocessor follow from the registers:
// the sums of the keys' kernel are dk and dv.
template <int D, bool ForKeys>
struct Shape {
  static constexpr int kWarpgroups = !ForKeys && D == 64 ? 2 : 1;
  static constexpr int kThreads = kWarpgroups * kWarpgroup;
  static constexpr int kOwn = 64 * kWarpgroups;
  static constexpr int kBlocks = D == 128 || !ForKeys ? 2 : 3;
  static constexpr uint32_t kOwnBytes = Panels<D, kOwn>::kBytes;
  static constexpr uint32_t kOtherBytes = Panels<D, 64>::kBytes;
  // Two own tiles, two sets of two other tiles, two sets of the lse and delta of 64 queries (or the
  // delta of the own ones).
  static constexpr uint32_t kStatistics = 2 * kOwnBytes + 4 * kOtherBytes;
  static constexpr size_t kSharedBytes = kStatistics + 4 * 64 * sizeof(float);
};

// ForKeys: a block for each tile of keys gathers dk = ds^T q and dv = p^T dout over the tiles of
// queries. Otherwise: a block for each tile of queries gathers dq = ds k over the tiles of keys.
// Scores stand as [own, other], the layout of a left operand.
template <int D, bool ForKeys, bool Windowed>
__global__ void __launch_bounds__(Shape<D, ForKeys>::kThreads, Shape<D, ForKeys>::kBlocks)
    wgmma_backward_kernel(AttentionProblem a, AttentionGradients gradients, int64_t tiles,
                          const bf16* __restrict__ q_all, const bf16* __restrict__ k_all,
                          const bf16* __restrict__ v_all, const bf16* __restrict__ out_all,
                          const bf16* __restrict__ dout_all, const float* __restrict__ lse,
                          float* __restrict__ delta) {
#ifdef TRAFO_HAS_WGMMA
  using S = Shape<D, ForKeys>;
  constexpr int kOwn = S::kOwn, kThreads = S::kThreads;
  extern __shared__ __align__(1024) unsigned char shared[];
  const uint32_t base = shared_address(shared);
  const Panels<D, kOwn> own_a{base}, own_b{base + S::kOwnBytes};  // k and v, or q and dout
  float* statistics_memory = reinterpret_cast<float*>(shared + S::kStatistics);

  AttentionItem item = AttentionItem::of_block(a, tiles);
  if (!ForKeys && a.causal) item.tile = tiles - 1 - item.tile;  // tiles with most keys first
  const int own0 = static_cast<int>(item.tile) * kOwn;
  if (own0 >= (ForKeys ? item.keys : item.queries)) return;
  const int own = min(kOwn, (ForKeys ? item.keys : item.queries) - own0);
  const int width = static_cast<int>(a.head_dim);
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * 16;
  const int group_row = S::kWarpgroups == 1 ? 0 : warp_row / 64 * 64;
  const int64_t column = item.head * width, kv_column = item.kv_head * width,
                out_stride = a.heads * width;
  const bf16* q = q_all + item.query * a.q_stride + column;
  const bf16* dout = dout_all + item.query * out_stride + column;
  const bf16* k = k_all + item.key * a.k_stride + kv_column;
  const bf16* v = v_all + item.key * a.v_stride + kv_column;
  const float* lse_row = lse + item.query * a.heads + item.head;
  float* delta_row = delta + item.query * a.heads + item.head;

  // Other rows that share an unmasked pair with own rows.
  const int other_begin =
      (ForKeys ? item.seen_from(a, own0) : item.first<Windowed>(a, own0)) / 64 * 64;
  const int other_end =
      ForKeys ? item.seen_below<Windowed>(a, own0 + own - 1) : item.visible(a, own0 + own - 1);
  // Those that own ones of the warpgroup have.
  const int group_end = ForKeys           ? other_end
                        : group_row < own ? item.visible(a, own0 + min(group_row + 64, own) - 1)
                                          : 0;
  const int group_begin = ForKeys ? 0 : item.first<Windowed>(a, own0 + group_row);
  const auto other_tile = [&](int set, int which) {
    return Panels<D, 64>{base + 2 * S::kOwnBytes +
                         static_cast<uint32_t>(2 * set + which) * S::kOtherBytes};
  };
  const auto copy_other = [&](int first) {
    const int set = first / 64 % 2;
    if constexpr (ForKeys) {
      const int rows = min(64, item.queries - first);
      copy_panels<kThreads>(other_tile(set, 0), q + first * a.q_stride, a.q_stride, rows, width);
      copy_panels<kThreads>(other_tile(set, 1), dout + first * out_stride, out_stride, rows, width);
      const int i = static_cast<int>(threadIdx.x) % 64, which = static_cast<int>(threadIdx.x) / 64;
      const float* from = which == 0 ? lse_row : delta_row;
      copy4(base + S::kStatistics + static_cast<uint32_t>(((2 * set + which) * 64 + i) * 4),
            i < rows ? from + (first + i) * a.heads : from, i < rows);
    } else {
      const int rows = min(64, item.keys - first);
      copy_panels<kThreads>(other_tile(set, 0), k + first * a.k_stride, a.k_stride, rows, width);
      copy_panels<kThreads>(other_tile(set, 1), v + first * a.v_stride, a.v_stride, rows, width);
    }
  };
  if constexpr (ForKeys) {
    copy_panels<kThreads>(own_a, k + own0 * a.k_stride, a.k_stride, own, width);
    copy_panels<kThreads>(own_b, v + own0 * a.v_stride, a.v_stride, own, width);
  } else {
    copy_panels<kThreads>(own_a, q + own0 * a.q_stride, a.q_stride, own, width);
    copy_panels<kThreads>(own_b, dout + own0 * out_stride, out_stride, own, width);
  }
  if (other_begin < other_end) copy_other(other_begin);
  commit_copies();

  float own_lse[2] = {0, 0}, own_delta[2] = {0, 0};  // rows g and g + 8, if they are queries
  if constexpr (!ForKeys) {
    gather_delta<D>(out_all + (item.query + own0) * out_stride + column, dout + own0 * out_stride,
                    out_stride, warp_row, own, width, statistics_memory);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = warp_row + g + 8 * half;
      if (row >= own) continue;
      own_lse[half] = lse_row[(own0 + row) * a.heads] * kLog2e;
      own_delta[half] = statistics_memory[row];
      if (t == 0) delta_row[(own0 + row) * a.heads] = own_delta[half];
    }
  }
  const float scale = a.scale * kLog2e;
  constexpr int kPanels = D / 64;
  Sums sum_a[kPanels], sum_b[ForKeys ? kPanels : 1];  // dk or dq, before its factor; and dv
  clear_all(sum_a);
  clear_all(sum_b);

  for (int first = other_begin; first < other_end; first += 64) {
    const int set = first / 64 % 2;
    wait_copies<0>();
    wgmma_publish();
    __syncthreads();  // the tile is here; nobody reads the one before it any more
    if (first + 64 < other_end) copy_other(first + 64);
    commit_copies();
    if (S::kWarpgroups > 1 && (first >= group_end || (Windowed && first + 64 <= group_begin)))
      continue;

    const Panels<D, 64> tile_a = other_tile(set, 0), tile_b = other_tile(set, 1);
    Sums s, dp;
    wgmma_begin();
    multiply_tiles<D, kOwn>(s, own_a, group_row, tile_a);
    wgmma_commit();
    multiply_tiles<D, kOwn>(dp, own_b, group_row, tile_b);
    wgmma_commit();

    // Some query of the 64 x 64 has a masked key, or does not exist.
    const int q0 = ForKeys ? first : own0 + group_row, k0 = ForKeys ? own0 + group_row : first;
    const bool masked = q0 + 64 > item.queries || k0 + 64 > item.visible(a, q0) ||
                        (Windowed && k0 < item.first(a, q0 + 63));
    wgmma_wait<1>();
    pin(s);
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      float other_lse[2] = {0, 0};
      if constexpr (ForKeys) {
        const float2 two =
            *reinterpret_cast<const float2*>(statistics_memory + 2 * set * 64 + 8 * n + 2 * t);
        other_lse[0] = two.x * kLog2e;
        other_lse[1] = two.y * kLog2e;
      }
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float log_sum = ForKeys ? other_lse[e % 2] : own_lse[e / 2];
        s[n][e] = fast_exp2(fmaf(s[n][e], scale, -log_sum));
      }
    }
    if (masked)
      mask_probabilities<ForKeys, Windowed>(s, a, item, own0 + warp_row + g, first, 2 * t);
    // dv's product runs while ds is made, if there are registers for the operands of both.
    constexpr bool kEarly = ForKeys && D == 128;
    Quad left_p[ForKeys ? 4 : 1], left_ds[4];
    const auto add_to_dv = [&] {
      if constexpr (ForKeys) {
#pragma unroll
        for (int kk = 0; kk < 4; ++kk) left_p[kk] = as_left(s[2 * kk], s[2 * kk + 1]);
        pin_all(sum_b);
        wgmma_begin();
        multiply_add_tiles<D>(sum_b, left_p, tile_b);
        wgmma_commit();
      }
    };
    if constexpr (kEarly) add_to_dv();
    wgmma_wait<kEarly ? 1 : 0>();
    pin(dp);
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      float2 other_delta = {0, 0};
      if constexpr (ForKeys)
        other_delta = *reinterpret_cast<const float2*>(statistics_memory + (2 * set + 1) * 64 +
                                                       8 * n + 2 * t);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float row_delta =
            ForKeys ? (e % 2 == 0 ? other_delta.x : other_delta.y) : own_delta[e / 2];
        dp[n][e] = s[n][e] * (dp[n][e] - row_delta);
      }
    }
#pragma unroll
    for (int kk = 0; kk < 4; ++kk) left_ds[kk] = as_left(dp[2 * kk], dp[2 * kk + 1]);
    if constexpr (!kEarly) add_to_dv();
    pin_all(sum_a);
    wgmma_begin();
    multiply_add_tiles<D>(sum_a, left_ds, tile_a);
    wgmma_commit();
    wgmma_wait<0>();
    pin_all(sum_a);
    if constexpr (ForKeys) pin_all(sum_b);
  }
  wait_copies<0>();
  __syncthreads();  // the own tiles are free for the results, copies or not

  const auto store = [&](const Panels<D, kOwn>& room, const Sums(&sums)[kPanels], float factor,
                         void* gradient, int64_t row, int64_t stride, bool accumulate) {
    bf16* to = static_cast<bf16*>(gradient) + row * stride + column;
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel)
      store_rows<64>(MmaTile<64>{room.base + panel * Panels<D, kOwn>::kPanelBytes}, warp_row,
                     sums[panel], factor, factor, to + 64 * panel, stride, own, width - 64 * panel,
                     accumulate, gradients.largest);
  };
  if constexpr (ForKeys) {
    if (gradients.dk)
      store(own_a, sum_a, a.scale, gradients.dk, item.key + own0, gradients.dk_stride,
            gradients.accumulate_dk);
    if (gradients.dv)
      store(own_b, sum_b, 1.0f, gradients.dv, item.key + own0, gradients.dv_stride,
            gradients.accumulate_dv);
  } else {
    store(own_a, sum_a, a.scale, gradients.dq, item.query + own0, gradients.dq_stride,
          gradients.accumulate_dq);
  }
#endif
}

template <int D, bool ForKeys>
int32_t run_pass(DeviceState& device, const AttentionBackwardParams& p, float* delta) {
  using S = Shape<D, ForKeys>;
  static_assert(S::kSharedBytes <= kHopperSharedMemory);
  const int64_t tiles = ((ForKeys ? p.max_keys : p.max_queries) + S::kOwn - 1) / S::kOwn;
  return with_window(p.window, [&](auto windowed) {
    return launch_attention(
        device, "attention_backward", wgmma_backward_kernel<D, ForKeys, windowed()>,
        p.sequences * p.heads * tiles, S::kThreads, S::kSharedBytes,
        AttentionProblem::of(device, p), attention_gradients(p), tiles,
        static_cast<const bf16*>(p.q), static_cast<const bf16*>(p.k), static_cast<const bf16*>(p.v),
        static_cast<const bf16*>(p.out), static_cast<const bf16*>(p.dout),
        static_cast<const float*>(p.lse), delta);
  });
}

template <int D>
int32_t run_backward(DeviceState& device, const AttentionBackwardParams& p, float* delta) {
  // The queries' kernel leaves delta for the keys'.
  int32_t result = kSuccess;
  if (p.dq && p.max_queries > 0) result = run_pass<D, false>(device, p, delta);
  if (result == kSuccess && (p.dk || p.dv) && p.max_keys > 0)
    result = run_pass<D, true>(device, p, delta);
  return result;
}

}  // namespace

int32_t attention_backward_wgmma(DeviceState& device, const AttentionBackwardParams& p,
                                 float* delta) {
  return p.head_dim <= 64 ? run_backward<64>(device, p, delta)
                          : run_backward<128>(device, p, delta);
}

}  // namespace trafo::cuda
