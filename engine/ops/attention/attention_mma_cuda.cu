// Attention in bfloat16 on the tensor cores, head_dim up to 128, tile by tile as in
// FlashAttention-2 (Dao, arXiv 2307.08691); backward without atomics: keys' and queries' gradients
// are gathered by kernels of their own, each of which recomputes the probabilities.
#include <initializer_list>

#include "engine/ops/attention/attention_cuda.cuh"
#include "engine/ops/attention/attention_mma.cuh"

namespace trafo::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kKeys = 64;  // rows of a tile that is streamed
constexpr float kLog2e = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;

// Which probabilities of a tile dropout keeps: for each query the bytes of the Philox blocks its
// keys touch, one bit an element. The first key need not begin a block, so that key j is bit
// first(i) + j.
struct KeptBits {
  static constexpr int kPitch = 12;  // up to kKeys / 8 + 1 blocks
  unsigned char* bytes;
  uint32_t first_low, step_low;

  __device__ __forceinline__ KeptBits(const AttentionProblem& a, const AttentionItem& item, int q0,
                                      int k0, unsigned char* memory)
      : bytes(memory),
        first_low(static_cast<uint32_t>(item.dropout_row(a, q0) + k0)),
        step_low(static_cast<uint32_t>(a.max_keys)) {}
  // All threads of the block; a barrier before anyone reads.
  template <int Queries>
  __device__ __forceinline__ void fill(const AttentionProblem& a, const AttentionItem& item, int q0,
                                       int k0) {
    constexpr int kBlocks = kKeys / 8 + 1;
    for (int at = static_cast<int>(threadIdx.x); at < Queries * kBlocks; at += kThreads) {
      const int i = at / kBlocks, b = at % kBlocks;
      const uint4 words = philox_block(a.dropout, (item.dropout_row(a, q0 + i) + k0) / 8 + b);
      uint32_t kept = 0;
#pragma unroll
      for (int half = 0; half < 8; ++half)
        kept |= dropout_factor(a.dropout, words, half) != 0.0f ? 1u << half : 0u;
      bytes[i * kPitch + b] = static_cast<unsigned char>(kept);
    }
  }
  __device__ __forceinline__ bool keeps(int i, int j) const {
    const uint32_t bit =
        (first_low + static_cast<uint32_t>(i) * step_low) % 8 + static_cast<uint32_t>(j);
    return bytes[i * kPitch + bit / 8] >> (bit % 8) & 1;
  }
};

// A block for each tile of queries; a warp for 16 * Groups of its rows.
template <int D, int Groups, bool Dropping>
__global__ void __launch_bounds__(kThreads)
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
  if (a.causal) item.tile = tiles - 1 - item.tile;  // the ones with most keys first
  const int q0 = static_cast<int>(item.tile) * kQueries;
  if (q0 >= item.queries) return;
  const int queries = min(kQueries, item.queries - q0), width = static_cast<int>(a.head_dim);
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * 16 * Groups;
  const int64_t column = item.head * width;
  const bf16* k = k_all + item.key * a.k_stride + column;
  const bf16* v = v_all + item.key * a.v_stride + column;

  const int keys_end = item.visible(a, q0 + queries - 1);
  const int keys_all = item.visible(a, q0);  // every query of the tile sees the keys below
  copy_tile<D, kQueries, kThreads>(q_tile, q_all + (item.query + q0) * a.q_stride + column,
                                   a.q_stride, queries, width);
  if (keys_end > 0)
    copy_tile<D, kKeys, kThreads>(k_tile, k, a.k_stride, min(kKeys, item.keys), width);
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

  for (int k0 = 0; k0 < keys_end; k0 += kKeys) {
    // Two sets of bits: the last readers of this one passed the previous tile's barriers.
    KeptBits kept(a, item, q0, k0, kept_memory + k0 / kKeys % 2 * kQueries * KeptBits::kPitch);
    if constexpr (Dropping) kept.fill<kQueries>(a, item, q0, k0);
    wait_copies<0>();
    __syncthreads();  // the keys are here; nobody reads the values before them any more
    if constexpr (kHoldQueries) {
      if (k0 == 0) {
#pragma unroll
        for (int m = 0; m < Groups; ++m)
#pragma unroll
          for (int kk = 0; kk < D / 16; ++kk)
            held[m][kk] = load_left(q_tile, warp_row + 16 * m, kk);
      }
    }
    copy_tile<D, kKeys, kThreads>(v_tile, v + k0 * a.v_stride, a.v_stride,
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
      for (int half = 0; half < 2; ++half) {
        const int row = warp_row + 16 * m + g + 8 * half;
        const int visible = masked ? item.visible(a, q0 + row) - k0 : kKeys;
        float high = maximum[m][half];
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            float& score = s[m][n][2 * half + e];
            score *= scale;
            if (masked && 8 * n + 2 * t + e >= visible) score = -INFINITY;
            high = fmaxf(high, score);
          }
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
      copy_tile<D, kKeys, kThreads>(k_tile, k + (k0 + kKeys) * a.k_stride, a.k_stride,
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

// ForKeys: a block for each tile of keys gathers dk = ds^T q and dv = p^T dout over the tiles of
// queries. Otherwise: a block for each tile of queries gathers dq = ds k over the tiles of keys.
// "Own" rows are those of the block's tile, 16 for each warp, "other" ones are streamed; scores
// stand as [own, other], the layout of a left operand.
template <int D, bool ForKeys, bool Dropping>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(AttentionProblem a, AttentionGradients gradients, int64_t tiles,
                    const bf16* __restrict__ q_all, const bf16* __restrict__ k_all,
                    const bf16* __restrict__ v_all, const bf16* __restrict__ dout_all,
                    const float* __restrict__ lse, const float* __restrict__ delta) {
  constexpr int kOwn = 64, kOther = kKeys;
  constexpr bool kHold = D <= 64;
  constexpr int kSub = 32;  // other rows worked on at a time
  constexpr uint32_t kTileBytes = kOther * D * 2;
  extern __shared__ __align__(1024) unsigned char shared[];
  const uint32_t base = shared_address(shared);
  const MmaTile<D> own_a{base}, own_b{base + kTileBytes};   // k and v, or q and dout
  const uint32_t other_base = base + 2 * kTileBytes;        // two sets of: q and dout, or k and v
  const uint32_t statistics = other_base + 4 * kTileBytes;  // two sets of: lse, delta of 64 queries
  const float* statistics_memory = reinterpret_cast<const float*>(shared + 6 * kTileBytes);
  auto* kept_memory = shared + 6 * kTileBytes + 4 * kOther * sizeof(float);

  AttentionItem item = AttentionItem::of_block(a, tiles);
  if (!ForKeys && a.causal) item.tile = tiles - 1 - item.tile;  // the ones with most keys first
  const int own0 = static_cast<int>(item.tile) * kOwn;
  if (own0 >= (ForKeys ? item.keys : item.queries)) return;
  const int own = min(kOwn, (ForKeys ? item.keys : item.queries) - own0);
  const int width = static_cast<int>(a.head_dim);
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * 16;
  const int64_t column = item.head * width, out_stride = a.heads * width;
  const bf16* q = q_all + item.query * a.q_stride + column;
  const bf16* dout = dout_all + item.query * out_stride + column;
  const bf16* k = k_all + item.key * a.k_stride + column;
  const bf16* v = v_all + item.key * a.v_stride + column;
  const float* lse_row = lse + item.query * a.heads + item.head;
  const float* delta_row = delta + item.query * a.heads + item.head;

  // Other rows that own ones have anything to do with.
  const int other_begin =
      ForKeys && a.causal ? max(0, own0 - item.keys + item.queries) / kOther * kOther : 0;
  const int other_end = ForKeys ? item.queries : item.visible(a, own0 + own - 1);
  const auto other_tile = [&](int set, int which) {
    return MmaTile<D>{other_base + static_cast<uint32_t>(2 * set + which) * kTileBytes};
  };
  const auto copy_other = [&](int first) {
    const int set = first / kOther % 2;
    if constexpr (ForKeys) {
      const int rows = min(kOther, item.queries - first);
      copy_tile<D, kOther, kThreads>(other_tile(set, 0), q + first * a.q_stride, a.q_stride, rows,
                                     width);
      copy_tile<D, kOther, kThreads>(other_tile(set, 1), dout + first * out_stride, out_stride,
                                     rows, width);
      const int i = static_cast<int>(threadIdx.x) % kOther,
                which = static_cast<int>(threadIdx.x) / kOther;
      const float* from = which == 0 ? lse_row : delta_row;
      copy4(statistics + static_cast<uint32_t>(((2 * set + which) * kOther + i) * 4),
            i < rows ? from + (first + i) * a.heads : from, i < rows);
    } else {
      const int rows = min(kOther, item.keys - first);
      copy_tile<D, kOther, kThreads>(other_tile(set, 0), k + first * a.k_stride, a.k_stride, rows,
                                     width);
      copy_tile<D, kOther, kThreads>(other_tile(set, 1), v + first * a.v_stride, a.v_stride, rows,
                                     width);
    }
  };
  if constexpr (ForKeys) {
    copy_tile<D, kOwn, kThreads>(own_a, k + own0 * a.k_stride, a.k_stride, own, width);
    copy_tile<D, kOwn, kThreads>(own_b, v + own0 * a.v_stride, a.v_stride, own, width);
  } else {
    copy_tile<D, kOwn, kThreads>(own_a, q + own0 * a.q_stride, a.q_stride, own, width);
    copy_tile<D, kOwn, kThreads>(own_b, dout + own0 * out_stride, out_stride, own, width);
  }
  if (other_begin < other_end) copy_other(other_begin);
  commit_copies();

  float own_lse[2] = {0, 0}, own_delta[2] = {0, 0};  // rows g and g + 8, if they are queries
  if constexpr (!ForKeys) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = own0 + warp_row + g + 8 * half;
      if (row < item.queries) {
        own_lse[half] = lse_row[row * a.heads] * kLog2e;
        own_delta[half] = delta_row[row * a.heads];
      }
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
    const KeptBits kept_here(a, item, q0, k0, kept_memory);
    KeptBits kept = kept_here;
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
    // Somewhere in the tile a query does not see a key, or does not exist.
    const bool masked = q0 + 64 > item.queries || k0 + 64 > item.visible(a, q0);
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
          float ds = p * (gradient - row_delta);
          if (masked && (q0 + i >= item.queries || k0 + j >= item.visible(a, q0 + i)))
            dropped = ds = 0;
          s[n][e] = dropped;
          dp[n][e] = ds;
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
          gradients.dk_stride, own, width, gradients.accumulate_dk);
    if (gradients.dv)
      store_rows<D>(
          own_b, warp_row, sum_b, 1.0f, 1.0f,
          static_cast<bf16*>(gradients.dv) + (item.key + own0) * gradients.dv_stride + column,
          gradients.dv_stride, own, width, gradients.accumulate_dv);
  } else {
    store_rows<D>(
        own_a, warp_row, sum_a, a.scale, a.scale,
        static_cast<bf16*>(gradients.dq) + (item.query + own0) * gradients.dq_stride + column,
        gradients.dq_stride, own, width, gradients.accumulate_dq);
  }
}

template <int D, int Groups>
int32_t run_forward(DeviceState& device, const AttentionForwardParams& p) {
  constexpr int kQueries = 64 * Groups;
  const int64_t tiles = (p.max_queries + kQueries - 1) / kQueries;
  const bool dropping = p.dropout.active();
  const size_t bytes =
      (kQueries + 2 * kKeys) * D * 2 + (dropping ? 2 * kQueries * KeptBits::kPitch : 0);
  return launch_attention(
      device, "attention_forward",
      dropping ? forward_kernel<D, Groups, true> : forward_kernel<D, Groups, false>,
      p.sequences * p.heads * tiles, kThreads, bytes, AttentionProblem::of(p), tiles,
      static_cast<const bf16*>(p.q), static_cast<const bf16*>(p.k), static_cast<const bf16*>(p.v),
      static_cast<bf16*>(p.out), static_cast<float*>(p.lse));
}

template <int D>
int32_t run_backward(DeviceState& device, const AttentionBackwardParams& p, const float* delta) {
  const bool dropping = p.dropout.active();
  const size_t bytes =
      6 * 64 * D * 2 + 4 * 64 * sizeof(float) + (dropping ? 64 * KeptBits::kPitch : 0);
  const auto run = [&](auto kernel, int64_t rows) {
    const int64_t tiles = (rows + 63) / 64;
    return launch_attention(device, "attention_backward", kernel, p.sequences * p.heads * tiles,
                            kThreads, bytes, AttentionProblem::of(p), attention_gradients(p), tiles,
                            static_cast<const bf16*>(p.q), static_cast<const bf16*>(p.k),
                            static_cast<const bf16*>(p.v), static_cast<const bf16*>(p.dout),
                            static_cast<const float*>(p.lse), delta);
  };
  int32_t result = kSuccess;
  if ((p.dk || p.dv) && p.max_keys > 0)
    result = run(dropping ? backward_kernel<D, true, true> : backward_kernel<D, true, false>,
                 p.max_keys);
  if (result == kSuccess && p.dq && p.max_queries > 0)
    result = run(dropping ? backward_kernel<D, false, true> : backward_kernel<D, false, false>,
                 p.max_queries);
  return result;
}

bool in_pieces(std::initializer_list<const void*> pointers,
               std::initializer_list<int64_t> strides) {
  for (const void* p : pointers)
    if (!aligned16(p)) return false;
  for (const int64_t stride : strides)
    if (stride % 8 != 0) return false;
  return true;
}

template <class Params>
bool fits(const Params& p) {
  return p.dtype == DType::bf16 && p.head_dim % 8 == 0 && p.head_dim <= 128 &&
         in_pieces({p.q, p.k, p.v, p.out}, {p.q_stride, p.k_stride, p.v_stride});
}

}  // namespace

bool attention_fits_mma(const AttentionForwardParams& p) {
  return fits(p);
}

bool attention_fits_mma(const AttentionBackwardParams& p) {
  return fits(p) && in_pieces({p.dout, p.dq, p.dk, p.dv}, {p.dq_stride, p.dk_stride, p.dv_stride});
}

int32_t attention_forward_mma(DeviceState& device, const AttentionForwardParams& p) {
  const bool one_tile = p.max_queries <= 64;
  if (p.head_dim <= 32) return run_forward<32, 1>(device, p);
  if (p.head_dim <= 64)
    return one_tile ? run_forward<64, 1>(device, p) : run_forward<64, 2>(device, p);
  return one_tile ? run_forward<128, 1>(device, p) : run_forward<128, 2>(device, p);
}

int32_t attention_backward_mma(DeviceState& device, const AttentionBackwardParams& p,
                               const float* delta) {
  if (p.head_dim <= 32) return run_backward<32>(device, p, delta);
  if (p.head_dim <= 64) return run_backward<64>(device, p, delta);
  return run_backward<128>(device, p, delta);
}

}  // namespace trafo::cuda
