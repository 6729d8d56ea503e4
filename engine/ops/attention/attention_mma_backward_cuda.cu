// Backward of attention in bfloat16 on the tensor cores, without atomics: keys' and queries'
// gradients are gathered by separate kernels, each of which recomputes the probabilities.
#include "engine/ops/attention/attention_mma.cuh"

namespace trafo::cuda {
namespace {

// ForKeys: a block for each tile of keys gathers dk = ds^T q and dv = p^T dout over the tiles of
// queries. Otherwise: a block for each tile of queries gathers dq = ds k over the tiles of keys.
// "Own" rows are the rows of the block's tile, 16 for each warp, "other" ones are streamed; scores
// stand as [own, other], the layout of a left operand.
template <int D, bool ForKeys, bool Dropping, bool Windowed>
__global__ void __launch_bounds__(kMmaThreads)
    backward_kernel(AttentionProblem a, AttentionGradients gradients, int64_t tiles,
                    const bf16* __restrict__ q_all, const bf16* __restrict__ k_all,
                    const bf16* __restrict__ v_all, const bf16* __restrict__ out_all,
                    const bf16* __restrict__ dout_all, const float* __restrict__ lse,
                    float* __restrict__ delta) {
  constexpr int kOwn = 64, kOther = kStreamedRows;
  constexpr bool kHold = D <= 64;
  constexpr int kSub = 32;  // other rows worked on at a time
  constexpr uint32_t kTileBytes = kOther * D * 2;
  extern __shared__ __align__(1024) unsigned char shared[];
  const uint32_t base = shared_address(shared);
  const MmaTile<D> own_a{base}, own_b{base + kTileBytes};   // k and v, or q and dout
  const uint32_t other_base = base + 2 * kTileBytes;        // two sets of: q and dout, or k and v
  const uint32_t statistics = other_base + 4 * kTileBytes;  // two sets of: lse, delta of 64 queries
  float* statistics_memory = reinterpret_cast<float*>(shared + 6 * kTileBytes);
  auto* kept_memory = shared + 6 * kTileBytes + 4 * kOther * sizeof(float);

  AttentionItem item = AttentionItem::of_block(a, tiles);
  if (!ForKeys && a.causal) item.tile = tiles - 1 - item.tile;  // tiles with most keys first
  const int own0 = static_cast<int>(item.tile) * kOwn;
  if (own0 >= (ForKeys ? item.keys : item.queries)) return;
  const int own = min(kOwn, (ForKeys ? item.keys : item.queries) - own0);
  const int width = static_cast<int>(a.head_dim);
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * 16;
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
      (ForKeys ? item.seen_from(a, own0) : item.first<Windowed>(a, own0)) / kOther * kOther;
  const int other_end =
      ForKeys ? item.seen_below<Windowed>(a, own0 + own - 1) : item.visible(a, own0 + own - 1);
  const auto other_tile = [&](int set, int which) {
    return MmaTile<D>{other_base + static_cast<uint32_t>(2 * set + which) * kTileBytes};
  };
  const auto copy_other = [&](int first) {
    const int set = first / kOther % 2;
    if constexpr (ForKeys) {
      const int rows = min(kOther, item.queries - first);
      copy_tile<D, kOther, kMmaThreads>(other_tile(set, 0), q + first * a.q_stride, a.q_stride,
                                        rows, width);
      copy_tile<D, kOther, kMmaThreads>(other_tile(set, 1), dout + first * out_stride, out_stride,
                                        rows, width);
      const int i = static_cast<int>(threadIdx.x) % kOther,
                which = static_cast<int>(threadIdx.x) / kOther;
      const float* from = which == 0 ? lse_row : delta_row;
      copy4(statistics + static_cast<uint32_t>(((2 * set + which) * kOther + i) * 4),
            i < rows ? from + (first + i) * a.heads : from, i < rows);
    } else {
      const int rows = min(kOther, item.keys - first);
      copy_tile<D, kOther, kMmaThreads>(other_tile(set, 0), k + first * a.k_stride, a.k_stride,
                                        rows, width);
      copy_tile<D, kOther, kMmaThreads>(other_tile(set, 1), v + first * a.v_stride, a.v_stride,
                                        rows, width);
    }
  };
  if constexpr (ForKeys) {
    copy_tile<D, kOwn, kMmaThreads>(own_a, k + own0 * a.k_stride, a.k_stride, own, width);
    copy_tile<D, kOwn, kMmaThreads>(own_b, v + own0 * a.v_stride, a.v_stride, own, width);
  } else {
    copy_tile<D, kOwn, kMmaThreads>(own_a, q + own0 * a.q_stride, a.q_stride, own, width);
    copy_tile<D, kOwn, kMmaThreads>(own_b, dout + own0 * out_stride, out_stride, own, width);
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
  float sum_a[D / 8][4],
      sum_b[ForKeys ? D / 8 : 1][4];  // dk or dq, before its factor `scale`; and dv
#pragma unroll
  for (int n = 0; n < D / 8; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      sum_a[n][e] = 0;
      if constexpr (ForKeys) sum_b[n][e] = 0;
    }
  Quad held_a[kHold ? D / 16 : 1], held_b[kHold ? D / 16 : 1];

  for (int first = other_begin; first < other_end; first += kOther) {
    const int set = first / kOther % 2;
    const int q0 = ForKeys ? first : own0, k0 = ForKeys ? own0 : first;
    if (first + kOther < other_end) copy_other(first + kOther);
    commit_copies();
    KeptBits kept(kept_memory);
    if constexpr (Dropping) kept.fill<kOwn>(a, item, q0, k0);
    wait_copies<1>();
    __syncthreads();
    if constexpr (kHold) {
      if (first == other_begin) {
#pragma unroll
        for (int kk = 0; kk < D / 16; ++kk) {
          held_a[kk] = load_left(own_a, warp_row, kk);
          held_b[kk] = load_left(own_b, warp_row, kk);
        }
      }
    }
    const MmaTile<D> tile_a = other_tile(set, 0), tile_b = other_tile(set, 1);
    // Some query of the tile has a masked key, or does not exist.
    const bool masked = q0 + 64 > item.queries || k0 + 64 > item.visible(a, q0) ||
                        (Windowed && k0 < item.first(a, q0 + 63));
#pragma unroll(D <= 64 ? 2 : 1)
    for (int sub = 0; sub < kOther; sub += kSub) {
      float s[kSub / 8][4], dp[kSub / 8][4];
#pragma unroll
      for (int n = 0; n < kSub / 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) s[n][e] = dp[n][e] = 0;
#pragma unroll
      for (int kk = 0; kk < D / 16; ++kk) {
        Quad left_a, left_b;
        if constexpr (kHold) {
          left_a = held_a[kk];
          left_b = held_b[kk];
        } else {
          left_a = load_left(own_a, warp_row, kk);
          left_b = load_left(own_b, warp_row, kk);
        }
#pragma unroll
        for (int n = 0; n < kSub / 16; ++n) {
          const Quad right_a = load_right_rows(tile_a, sub + 16 * n, kk);
          multiply_add(s[2 * n], left_a, right_a.x[0], right_a.x[1]);
          multiply_add(s[2 * n + 1], left_a, right_a.x[2], right_a.x[3]);
          const Quad right_b = load_right_rows(tile_b, sub + 16 * n, kk);
          multiply_add(dp[2 * n], left_b, right_b.x[0], right_b.x[1]);
          multiply_add(dp[2 * n + 1], left_b, right_b.x[2], right_b.x[3]);
        }
      }
#pragma unroll
      for (int n = 0; n < kSub / 8; ++n) {
        float other_lse[2] = {0, 0}, other_delta[2] = {0, 0};
        if constexpr (ForKeys) {
          const float* at = statistics_memory + 2 * set * kOther + sub + 8 * n + 2 * t;
          other_lse[0] = at[0] * kLog2e;
          other_lse[1] = at[1] * kLog2e;
          other_delta[0] = at[kOther];
          other_delta[1] = at[kOther + 1];
        }
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int own_row = warp_row + g + 8 * (e / 2), other_row = sub + 8 * n + 2 * t + e % 2;
          const int i = ForKeys ? other_row : own_row, j = ForKeys ? own_row : other_row;
          const float log_sum = ForKeys ? other_lse[e % 2] : own_lse[e / 2];
          const float row_delta = ForKeys ? other_delta[e % 2] : own_delta[e / 2];
          float p = fast_exp2(fmaf(s[n][e], scale, -log_sum));
          float gradient = dp[n][e], dropped = p;
          if constexpr (Dropping) {
            const float factor = kept.keeps(i, j) ? a.dropout.scale : 0.0f;
            gradient *= factor;
            dropped *= factor;
          }
          s[n][e] = dropped;
          dp[n][e] = p * (gradient - row_delta);
        }
      }
      if (masked) {
#pragma unroll
        for (int n = 0; n < kSub / 8; ++n)
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int own_row = warp_row + g + 8 * (e / 2), other_row = sub + 8 * n + 2 * t + e % 2;
            const int i = q0 + (ForKeys ? other_row : own_row);
            const int j = k0 + (ForKeys ? own_row : other_row);
            if (i >= item.queries || j >= item.visible(a, i) || (Windowed && j < item.first(a, i)))
              s[n][e] = dp[n][e] = 0;
          }
      }
#pragma unroll
      for (int kk = 0; kk < kSub / 16; ++kk) {
        const Quad left_ds = as_left(dp[2 * kk], dp[2 * kk + 1]);
        Quad left_p;
        if constexpr (ForKeys) left_p = as_left(s[2 * kk], s[2 * kk + 1]);
#pragma unroll
        for (int n = 0; n < D / 16; ++n) {
          const Quad right_a = load_right_columns(tile_a, sub + 16 * kk, n);
          multiply_add(sum_a[2 * n], left_ds, right_a.x[0], right_a.x[1]);
          multiply_add(sum_a[2 * n + 1], left_ds, right_a.x[2], right_a.x[3]);
          if constexpr (ForKeys) {
            const Quad right_b = load_right_columns(tile_b, sub + 16 * kk, n);
            multiply_add(sum_b[2 * n], left_p, right_b.x[0], right_b.x[1]);
            multiply_add(sum_b[2 * n + 1], left_p, right_b.x[2], right_b.x[3]);
          }
        }
      }
    }
    __syncthreads();  // before the next tile but one, and the next bits, are written
  }
  wait_copies<0>();
  __syncthreads();  // the own tiles are free for the results, copies or not

  if constexpr (ForKeys) {
    if (gradients.dk)
      store_rows<D>(
          own_a, warp_row, sum_a, a.scale, a.scale,
          static_cast<bf16*>(gradients.dk) + (item.key + own0) * gradients.dk_stride + column,
          gradients.dk_stride, own, width, gradients.accumulate_dk, gradients.largest);
    if (gradients.dv)
      store_rows<D>(
          own_b, warp_row, sum_b, 1.0f, 1.0f,
          static_cast<bf16*>(gradients.dv) + (item.key + own0) * gradients.dv_stride + column,
          gradients.dv_stride, own, width, gradients.accumulate_dv, gradients.largest);
  } else {
    store_rows<D>(
        own_a, warp_row, sum_a, a.scale, a.scale,
        static_cast<bf16*>(gradients.dq) + (item.query + own0) * gradients.dq_stride + column,
        gradients.dq_stride, own, width, gradients.accumulate_dq, gradients.largest);
  }
}

template <int D>
int32_t run_backward(DeviceState& device, const AttentionBackwardParams& p, float* delta) {
  const bool dropping = p.dropout.active();
  constexpr size_t kBytes = 6 * 64 * D * 2 + 4 * 64 * sizeof(float),
                   kDroppingBytes = kBytes + 64 * KeptBits::kPitch;
  static_assert(kDroppingBytes <= kLeastSharedMemory);
  const size_t bytes = dropping ? kDroppingBytes : kBytes;
  const auto run = [&](auto kernel, int64_t rows) {
    const int64_t tiles = (rows + 63) / 64;
    return launch_attention(device, "attention_backward", kernel, p.sequences * p.heads * tiles,
                            kMmaThreads, bytes, AttentionProblem::of(device, p),
                            attention_gradients(p), tiles, static_cast<const bf16*>(p.q),
                            static_cast<const bf16*>(p.k), static_cast<const bf16*>(p.v),
                            static_cast<const bf16*>(p.out), static_cast<const bf16*>(p.dout),
                            static_cast<const float*>(p.lse), delta);
  };
  // The queries' kernel leaves delta for the keys'.
  int32_t result = kSuccess;
  const auto run_pass = [&](auto for_keys, int64_t rows) {
    return with_window(p.window, [&](auto windowed) {
      return run(dropping ? backward_kernel<D, for_keys(), true, windowed()>
                          : backward_kernel<D, for_keys(), false, windowed()>,
                 rows);
    });
  };
  if (p.dq && p.max_queries > 0) result = run_pass(std::false_type{}, p.max_queries);
  if (result == kSuccess && (p.dk || p.dv) && p.max_keys > 0)
    result = run_pass(std::true_type{}, p.max_keys);
  return result;
}

}  // namespace

int32_t attention_backward_mma(DeviceState& device, const AttentionBackwardParams& p,
                               float* delta) {
  if (p.head_dim <= 32) return run_backward<32>(device, p, delta);
  if (p.head_dim <= 64) return run_backward<64>(device, p, delta);
  return run_backward<128>(device, p, delta);
}

}  // namespace trafo::cuda
