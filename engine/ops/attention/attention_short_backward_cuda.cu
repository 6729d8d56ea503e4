// Backward of attention of short sequences in bfloat16 on the tensor cores, in one pass. A block
// holds all queries and keys of a head, so it recomputes probabilities once for all three
// gradients, and every sum is complete in the block.
#include "engine/ops/attention/attention_mma.cuh"

namespace trafo::cuda {
namespace {

// Columns of a tile of scores: what MmaTile has.
constexpr int score_columns(int groups) {
  return groups <= 2 ? 32 : 64;
}

// Blocks that the shared memory of a multiprocessor holds. Registers must not limit them further.
constexpr int resident_blocks(int columns, int groups) {
  return columns <= 32   ? (groups == 2   ? 13
                            : groups == 3 ? 8
                                          : 4)
         : columns <= 64 ? (groups == 2   ? 10
                            : groups == 3 ? 6
                                          : 4)
                         : (groups == 2   ? 6
                            : groups == 3 ? 3
                                          : 2);
}

// Up to 16 * Groups queries and keys. First a warp has 16 queries and leaves their probabilities
// and gradients of the scores in shared memory, [query, key]; then it has 16 rows of each result.
template <int D, int Groups>
__global__ void __launch_bounds__(32 * Groups, resident_blocks(D, Groups))
    short_backward_kernel(AttentionProblem a, AttentionGradients gradients, int rows,
                          const bf16* __restrict__ q_all, const bf16* __restrict__ k_all,
                          const bf16* __restrict__ v_all, const bf16* __restrict__ dout_all,
                          const float* __restrict__ lse) {
  constexpr int kPitch = score_columns(Groups);
  extern __shared__ __align__(1024) unsigned char shared[];
  const uint32_t tile_bytes = static_cast<uint32_t>(rows) * D * 2,
                 scores_bytes = static_cast<uint32_t>(rows) * kPitch * 2;
  const MmaTile<D> q_tile{shared_address(shared)}, dout_tile{q_tile.base + tile_bytes},
      k_tile{dout_tile.base + tile_bytes}, v_tile{k_tile.base + tile_bytes};
  const MmaTile<kPitch> p_tile{v_tile.base + tile_bytes}, ds_tile{p_tile.base + scores_bytes};

  const AttentionItem item = AttentionItem::of_short_block(a, rows);
  if (item.queries == 0 && item.keys == 0) return;
  const int width = static_cast<int>(a.head_dim);
  const int64_t column = item.head * width, kv_column = item.kv_head * width,
                out_stride = a.heads * width;
  copy_rows<D>(q_tile, q_all + item.query * a.q_stride + column, a.q_stride, item.queries, width);
  copy_rows<D>(k_tile, k_all + item.key * a.k_stride + kv_column, a.k_stride, item.keys, width);
  copy_rows<D>(v_tile, v_all + item.key * a.v_stride + kv_column, a.v_stride, item.keys, width);
  copy_rows<D>(dout_tile, dout_all + item.query * out_stride + column, out_stride, item.queries,
               width);
  commit_copies();

  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int warp = static_cast<int>(threadIdx.x) / 32, row0 = 16 * warp;
  float log_sum[2] = {0, 0};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = row0 + g + 8 * half;
    if (row < item.queries) log_sum[half] = lse[(item.query + row) * a.heads + item.head] * kLog2e;
  }
  KeptBits kept(shared + 4 * tile_bytes + 2 * scores_bytes);
  const bool dropping = a.dropout.threshold != 0;
  if (dropping) kept.fill_all(a, item);
  wait_copies<0>();
  __syncthreads();

  // Groups of keys that the warp's queries see.
  const int key_groups =
      row0 < item.queries ? whole_groups(item.visible(a, min(row0 + 16, item.queries) - 1)) : 0;
  if (key_groups > 0) {
    float s[2 * Groups][4], dp[2 * Groups][4];
#pragma unroll
    for (int n = 0; n < 2 * Groups; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) s[n][e] = dp[n][e] = 0;
        // Not unrolled, here and below: a block runs its code once, and instructions have to
        // come from memory too.
#pragma unroll 2
    for (int kk = 0; kk < whole_groups(width); ++kk) {
      const Quad left_q = load_left(q_tile, row0, kk), left_dout = load_left(dout_tile, row0, kk);
#pragma unroll
      for (int n = 0; n < Groups; ++n) {
        if (n >= key_groups) continue;
        const Quad right_k = load_right_rows(k_tile, 16 * n, kk);
        multiply_add(s[2 * n], left_q, right_k.x[0], right_k.x[1]);
        multiply_add(s[2 * n + 1], left_q, right_k.x[2], right_k.x[3]);
        const Quad right_v = load_right_rows(v_tile, 16 * n, kk);
        multiply_add(dp[2 * n], left_dout, right_v.x[0], right_v.x[1]);
        multiply_add(dp[2 * n + 1], left_dout, right_v.x[2], right_v.x[3]);
      }
    }

    const float scale = a.scale * kLog2e;
    uint32_t keeps = ~0u;  // bit 4 n + e
    static_assert(8 * Groups <= 32);
    if (dropping) {
#pragma unroll
      for (int n = 0; n < 2 * Groups; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int i = row0 + g + 8 * (e / 2), j = 8 * n + 2 * t + e % 2;
          if (i < item.queries && j < item.keys && kept.keeps(i, j)) {
            dp[n][e] *= a.dropout.scale;
          } else {
            dp[n][e] = 0;
            keeps &= ~(1u << (4 * n + e));
          }
        }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = row0 + g + 8 * half;
      const int visible = row < item.queries ? item.visible(a, row) : 0;
      // delta = sum_j P_ij dP_ij (Dao et al., arXiv 2205.14135, section 3.1). The whole row is
      // here, so dO_i . O_i is not needed.
      float delta = 0;
#pragma unroll
      for (int n = 0; n < 2 * Groups; ++n)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          const bool seen = 8 * n + 2 * t + e % 2 < visible;
          s[n][e] = seen ? fast_exp2(fmaf(s[n][e], scale, -log_sum[half])) : 0.0f;
          delta = fmaf(s[n][e], dp[n][e], delta);
        }
      delta += __shfl_xor_sync(0xffffffffu, delta, 1);
      delta += __shfl_xor_sync(0xffffffffu, delta, 2);
#pragma unroll
      for (int n = 0; n < 2 * Groups; ++n)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          dp[n][e] = s[n][e] * (dp[n][e] - delta);
          if (dropping) s[n][e] = keeps >> (4 * n + e) & 1 ? s[n][e] * a.dropout.scale : 0.0f;
        }
    }
#pragma unroll
    for (int n = 0; n < 2 * Groups; ++n) {
      if (n / 2 >= key_groups) continue;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t at = (p_tile.at(row0 + g + 8 * half, 0) ^ 16u * n) + 4 * t;
        store_shared(at, pack_bf16(s[n][2 * half], s[n][2 * half + 1]));
        store_shared(at + scores_bytes, pack_bf16(dp[n][2 * half], dp[n][2 * half + 1]));
      }
    }
  }
  __syncthreads();

  // The first group of queries that sees a key of the warp's group of keys.
  const int first_group = item.seen_from(a, row0) / 16;
  // dq = ds k, dk = ds^T q, dv = p^T dout.
#pragma unroll 1
  for (int which = 0; which < 3; ++which) {
    const bool for_queries = which == 0;
    void* const to = for_queries ? gradients.dq : which == 1 ? gradients.dk : gradients.dv;
    const int own = for_queries ? item.queries : item.keys;
    if (!to || row0 >= own) continue;
    const MmaTile<kPitch> left_tile = which == 2 ? p_tile : ds_tile;
    const MmaTile<D> right_tile = for_queries ? k_tile : which == 1 ? q_tile : dout_tile;
    const int end = for_queries ? key_groups : whole_groups(item.queries);
    float sums[D / 8][4];
#pragma unroll
    for (int n = 0; n < D / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) sums[n][e] = 0;
#pragma unroll 1
    for (int m = for_queries ? 0 : first_group; m < end; ++m) {
      const Quad left = for_queries ? load_left(left_tile, row0, m)
                                    : load_left_transposed(left_tile, 16 * m, warp);
#pragma unroll
      for (int n = 0; n < D / 16; ++n) {
        const Quad right = load_right_columns(right_tile, 16 * m, n);
        multiply_add(sums[2 * n], left, right.x[0], right.x[1]);
        multiply_add(sums[2 * n + 1], left, right.x[2], right.x[3]);
      }
    }
    const int64_t stride = for_queries  ? gradients.dq_stride
                           : which == 1 ? gradients.dk_stride
                                        : gradients.dv_stride;
    const bool accumulate = for_queries  ? gradients.accumulate_dq
                            : which == 1 ? gradients.accumulate_dk
                                         : gradients.accumulate_dv;
    const float factor = which == 2 ? 1.0f : a.scale;
    // The values are not read any more: their tile is free to stage results.
    store_rows<D>(v_tile, row0, sums, factor, factor,
                  static_cast<bf16*>(to) + (for_queries ? item.query : item.key) * stride + column,
                  stride, own, width, accumulate, gradients.largest);
  }
}

}  // namespace

int32_t attention_short_backward(DeviceState& device, const AttentionBackwardParams& p) {
  const int groups = short_groups(p);
  if (groups == 0 || !(p.dq || p.dk || p.dv)) return kSuccess;
  return with_short_kernel(p, groups, [&](auto columns, auto most) {
    constexpr int D = decltype(columns)::value, Groups = decltype(most)::value;
    const int rows = 16 * groups;
    static_assert(16 * Groups * (4 * D * 2 + 2 * score_columns(Groups) * 2 + KeptBits::kPitch) <=
                  kLeastSharedMemory);
    const int bytes = 4 * rows * D * 2 + 2 * rows * score_columns(Groups) * 2 +
                      (p.dropout.active() ? rows * KeptBits::kPitch : 0);
    return launch_attention(device, "attention_backward", short_backward_kernel<D, Groups>,
                            p.sequences * p.heads, 32 * groups, static_cast<size_t>(bytes),
                            AttentionProblem::of(device, p), attention_gradients(p), rows,
                            static_cast<const bf16*>(p.q), static_cast<const bf16*>(p.k),
                            static_cast<const bf16*>(p.v), static_cast<const bf16*>(p.dout),
                            static_cast<const float*>(p.lse));
  });
}

}  // namespace trafo::cuda
