// Attention in bfloat16 on the tensor cores, head_dim up to 128, tile by tile as in
// FlashAttention-2 (Dao, arXiv 2307.08691).
#include "engine/ops/attention/attention_mma.cuh"

namespace trafo::cuda {
namespace {

constexpr int kKeys = kStreamedRows;

// A block for each tile of queries; a warp for 16 * Groups of its rows.
template <int D, int Groups, bool Dropping, bool Windowed>
__global__ void __launch_bounds__(kMmaThreads)
    forward_kernel(AttentionProblem a, int64_t tiles, const bf16* __restrict__ q_all,
                   const bf16* __restrict__ k_all, const bf16* __restrict__ v_all,
                   bf16* __restrict__ out, float* __restrict__ lse) {
  constexpr int kQueries = 64 * Groups;
  // In registers if they leave room, else read from shared memory again for every tile of keys.
  constexpr bool kHoldQueries = D * Groups <= 64;
  extern __shared__ __align__(1024) unsigned char shared[];
  const MmaTile<D> q_tile{shared_address(shared)}, k_tile{q_tile.base + kQueries * D * 2},
      v_tile{k_tile.base + kKeys * D * 2};
  auto* kept_memory = shared + (kQueries + 2 * kKeys) * D * 2;

  AttentionItem item = AttentionItem::of_block(a, tiles);
  if (a.causal) item.tile = tiles - 1 - item.tile;  // tiles with most keys first
  const int q0 = static_cast<int>(item.tile) * kQueries;
  if (q0 >= item.queries) return;
  const int queries = min(kQueries, item.queries - q0), width = static_cast<int>(a.head_dim);
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * 16 * Groups;
  const int64_t column = item.head * width, kv_column = item.kv_head * width;
  const bf16* k = k_all + item.key * a.k_stride + kv_column;
  const bf16* v = v_all + item.key * a.v_stride + kv_column;

  const int keys_end = item.visible(a, q0 + queries - 1);
  const int keys_all = item.visible(a, q0);  // every query of the tile sees the keys below
  const int keys_begin = item.first<Windowed>(a, q0) / kKeys * kKeys;
  const int keys_from = item.first<Windowed>(a, q0 + queries - 1);  // and from here on
  copy_tile<D, kQueries, kMmaThreads>(q_tile, q_all + (item.query + q0) * a.q_stride + column,
                                      a.q_stride, queries, width);
  if (keys_begin < keys_end)
    copy_tile<D, kKeys, kMmaThreads>(k_tile, k + keys_begin * a.k_stride, a.k_stride,
                                     min(kKeys, item.keys - keys_begin), width);
  commit_copies();

  const float scale = a.scale * kLog2e;
  float maximum[Groups][2], sum[Groups][2], gathered[Groups][D / 8][4];
#pragma unroll
  for (int m = 0; m < Groups; ++m) {
    // From the lowest finite number and not -infinity: 2^(-infinity - maximum) is then 0 and not
    // NaN.
    maximum[m][0] = maximum[m][1] = -3.402823466e38f;
    sum[m][0] = sum[m][1] = 0;
#pragma unroll
    for (int n = 0; n < D / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) gathered[m][n][e] = 0;
  }
  Quad held[kHoldQueries ? Groups : 1][kHoldQueries ? D / 16 : 1];

  for (int k0 = keys_begin; k0 < keys_end; k0 += kKeys) {
    // Two sets of bits: the last readers of this one passed the previous tile's barriers.
    KeptBits kept(kept_memory + k0 / kKeys % 2 * kQueries * KeptBits::kPitch);
    if constexpr (Dropping) kept.fill<kQueries>(a, item, q0, k0);
    wait_copies<0>();
    __syncthreads();  // the keys are here; nobody reads the values before them any more
    if constexpr (kHoldQueries) {
      if (k0 == keys_begin) {
#pragma unroll
        for (int m = 0; m < Groups; ++m)
#pragma unroll
          for (int kk = 0; kk < D / 16; ++kk)
            held[m][kk] = load_left(q_tile, warp_row + 16 * m, kk);
      }
    }
    copy_tile<D, kKeys, kMmaThreads>(v_tile, v + k0 * a.v_stride, a.v_stride,
                                     min(kKeys, item.keys - k0), width);
    commit_copies();

    float s[Groups][kKeys / 8][4];
#pragma unroll
    for (int m = 0; m < Groups; ++m)
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) s[m][n][e] = 0;
#pragma unroll
    for (int kk = 0; kk < D / 16; ++kk) {
      Quad left[Groups];
#pragma unroll
      for (int m = 0; m < Groups; ++m) {
        if constexpr (kHoldQueries)
          left[m] = held[m][kk];
        else
          left[m] = load_left(q_tile, warp_row + 16 * m, kk);
      }
#pragma unroll
      for (int n = 0; n < kKeys / 16; ++n) {
        const Quad right = load_right_rows(k_tile, 16 * n, kk);
#pragma unroll
        for (int m = 0; m < Groups; ++m) {
          multiply_add(s[m][2 * n], left[m], right.x[0], right.x[1]);
          multiply_add(s[m][2 * n + 1], left[m], right.x[2], right.x[3]);
        }
      }
    }

    const bool masked = k0 + kKeys > keys_all;
#pragma unroll
    for (int m = 0; m < Groups; ++m)
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) s[m][n][e] *= scale;
#pragma unroll
    for (int m = 0; m < Groups; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = warp_row + 16 * m + g + 8 * half;
        if (masked) {
          const int visible = item.visible(a, q0 + row) - k0;
#pragma unroll
          for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
            for (int e = 0; e < 2; ++e)
              if (8 * n + 2 * t + e >= visible) s[m][n][2 * half + e] = -INFINITY;
        }
        if (Windowed && k0 < keys_from) {
          const int first = item.first(a, q0 + row) - k0;
#pragma unroll
          for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
            for (int e = 0; e < 2; ++e)
              if (8 * n + 2 * t + e < first) s[m][n][2 * half + e] = -INFINITY;
        }
        float high = maximum[m][half];
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
          for (int e = 0; e < 2; ++e) high = fmaxf(high, s[m][n][2 * half + e]);
        high = fmaxf(high, __shfl_xor_sync(0xffffffffu, high, 1));
        high = fmaxf(high, __shfl_xor_sync(0xffffffffu, high, 2));
        // This lane's part of the sum: the four are added at the end.
        const float shrink = fast_exp2(maximum[m][half] - high);
        float part = 0;
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            float& score = s[m][n][2 * half + e];
            score = fast_exp2(score - high);
            part += score;
            if (Dropping && !kept.keeps(row, 8 * n + 2 * t + e)) score = 0;
          }
        sum[m][half] = fmaf(sum[m][half], shrink, part);
        maximum[m][half] = high;
#pragma unroll
        for (int n = 0; n < D / 8; ++n) {
          gathered[m][n][2 * half] *= shrink;
          gathered[m][n][2 * half + 1] *= shrink;
        }
      }

    wait_copies<0>();
    __syncthreads();  // the values are here; nobody reads the keys any more
    if (k0 + kKeys < keys_end)
      copy_tile<D, kKeys, kMmaThreads>(k_tile, k + (k0 + kKeys) * a.k_stride, a.k_stride,
                                       min(kKeys, item.keys - k0 - kKeys), width);
    commit_copies();
#pragma unroll
    for (int kk = 0; kk < kKeys / 16; ++kk) {
      Quad left[Groups];
#pragma unroll
      for (int m = 0; m < Groups; ++m) left[m] = as_left(s[m][2 * kk], s[m][2 * kk + 1]);
#pragma unroll
      for (int n = 0; n < D / 16; ++n) {
        const Quad right = load_right_columns(v_tile, 16 * kk, n);
#pragma unroll
        for (int m = 0; m < Groups; ++m) {
          multiply_add(gathered[m][2 * n], left[m], right.x[0], right.x[1]);
          multiply_add(gathered[m][2 * n + 1], left[m], right.x[2], right.x[3]);
        }
      }
    }
  }
  wait_copies<0>();
  __syncthreads();  // the rows of the queries' tile are free for the result, copies or not

  const int64_t out_stride = a.heads * width;
#pragma unroll
  for (int m = 0; m < Groups; ++m) {
    float normalise[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float total = sum[m][half];
      total += __shfl_xor_sync(0xffffffffu, total, 1);
      total += __shfl_xor_sync(0xffffffffu, total, 2);
      const bool empty = total == 0;  // a sum that is NaN must reach the output
      normalise[half] = empty ? 0.0f : a.dropout.scale / total;
      const int row = warp_row + 16 * m + g + 8 * half;
      if (lse && t == 0 && row < queries)
        lse[(item.query + q0 + row) * a.heads + item.head] =
            empty ? 0.0f : maximum[m][half] * kLn2 + logf(total);
    }
    store_rows<D>(q_tile, warp_row + 16 * m, gathered[m], normalise[0], normalise[1],
                  out + (item.query + q0) * out_stride + column, out_stride, queries, width, false);
  }
}

template <int D, int Groups, bool Windowed>
auto kernel_of(bool dropping) {
  // With dropout two groups of rows of 128 columns do not fit the registers.
  if constexpr (D * Groups <= 128)
    if (dropping) return forward_kernel<D, Groups, true, Windowed>;
  return forward_kernel<D, Groups, false, Windowed>;
}

template <int D, int Groups>
int32_t run_forward(DeviceState& device, const AttentionForwardParams& p) {
  constexpr int kQueries = 64 * Groups;
  const int64_t tiles = (p.max_queries + kQueries - 1) / kQueries;
  const bool dropping = p.dropout.active();
  constexpr size_t kBytes = (kQueries + 2 * kKeys) * D * 2,
                   kDroppingBytes = kBytes + 2 * kQueries * KeptBits::kPitch;
  static_assert(kDroppingBytes <= kLeastSharedMemory);
  const size_t bytes = dropping ? kDroppingBytes : kBytes;
  return with_window(p.window, [&](auto windowed) {
    return launch_attention(device, "attention_forward", kernel_of<D, Groups, windowed()>(dropping),
                            p.sequences * p.heads * tiles, kMmaThreads, bytes,
                            AttentionProblem::of(device, p), tiles, static_cast<const bf16*>(p.q),
                            static_cast<const bf16*>(p.k), static_cast<const bf16*>(p.v),
                            static_cast<bf16*>(p.out), static_cast<float*>(p.lse));
  });
}

}  // namespace

int32_t attention_forward_mma(DeviceState& device, const AttentionForwardParams& p) {
  const bool one_tile = p.max_queries <= 64;
  if (p.head_dim <= 32) return run_forward<32, 1>(device, p);
  if (p.head_dim <= 64)
    return one_tile ? run_forward<64, 1>(device, p) : run_forward<64, 2>(device, p);
  return one_tile || p.dropout.active() ? run_forward<128, 1>(device, p)
                                        : run_forward<128, 2>(device, p);
}

}  // namespace trafo::cuda
