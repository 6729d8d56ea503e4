// Attention of short sequences in bfloat16 on the tensor cores. A block holds all queries and keys
// of a head, so softmax needs no rescaling, and it computes only the groups of 16 rows that exist.
#include "engine/ops/attention/attention_mma.cuh"

namespace trafo::cuda {
namespace {

// A warp for 16 queries; up to Groups groups of keys.
template <int D, int Groups>
__global__ void __launch_bounds__(32 * Groups)
    short_forward_kernel(AttentionProblem a, int rows, const bf16* __restrict__ q_all,
                         const bf16* __restrict__ k_all, const bf16* __restrict__ v_all,
                         bf16* __restrict__ out, float* __restrict__ lse) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const uint32_t tile_bytes = static_cast<uint32_t>(rows) * D * 2;
  const MmaTile<D> q_tile{shared_address(shared)}, k_tile{q_tile.base + tile_bytes},
      v_tile{k_tile.base + tile_bytes};

  const AttentionItem item = AttentionItem::of_short_block(a, rows);
  if (item.queries == 0) return;
  const int width = static_cast<int>(a.head_dim);
  const int64_t column = item.head * width, kv_column = item.kv_head * width;
  copy_rows<D>(q_tile, q_all + item.query * a.q_stride + column, a.q_stride, item.queries, width);
  copy_rows<D>(k_tile, k_all + item.key * a.k_stride + kv_column, a.k_stride, item.keys, width);
  copy_rows<D>(v_tile, v_all + item.key * a.v_stride + kv_column, a.v_stride, item.keys, width);
  commit_copies();
  KeptBits kept(shared + 3 * tile_bytes);
  const bool dropping = a.dropout.threshold != 0;
  if (dropping) kept.fill_all(a, item);
  wait_copies<0>();
  __syncthreads();

  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int row0 = static_cast<int>(threadIdx.x) / 32 * 16;
  if (row0 >= item.queries) return;
  const int key_groups = whole_groups(item.visible(a, min(row0 + 16, item.queries) - 1));
  float s[2 * Groups][4];
#pragma unroll
  for (int n = 0; n < 2 * Groups; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) s[n][e] = 0;
      // Not unrolled, here and below: a block runs its code once, and instructions have to come
      // from memory too.
#pragma unroll 2
  for (int kk = 0; kk < whole_groups(width); ++kk) {
    const Quad left = load_left(q_tile, row0, kk);
#pragma unroll
    for (int n = 0; n < Groups; ++n) {
      if (n >= key_groups) continue;
      const Quad right = load_right_rows(k_tile, 16 * n, kk);
      multiply_add(s[2 * n], left, right.x[0], right.x[1]);
      multiply_add(s[2 * n + 1], left, right.x[2], right.x[3]);
    }
  }

  const float scale = a.scale * kLog2e;
  float normalise[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = row0 + g + 8 * half;
    const int visible = item.visible(a, row);
    // From the lowest finite number and not -infinity: 2^(-infinity - high) is then 0 and not NaN.
    float high = -3.402823466e38f;
#pragma unroll
    for (int n = 0; n < 2 * Groups; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& score = s[n][2 * half + e];
        score = 8 * n + 2 * t + e < visible ? score * scale : -INFINITY;
        high = fmaxf(high, score);
      }
    high = fmaxf(high, __shfl_xor_sync(0xffffffffu, high, 1));
    high = fmaxf(high, __shfl_xor_sync(0xffffffffu, high, 2));
    float total = 0;
#pragma unroll
    for (int n = 0; n < 2 * Groups; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& score = s[n][2 * half + e];
        score = fast_exp2(score - high);
        total += score;
      }
    total += __shfl_xor_sync(0xffffffffu, total, 1);
    total += __shfl_xor_sync(0xffffffffu, total, 2);
    const bool empty = total == 0;  // a sum that is NaN must reach the output
    normalise[half] = empty ? 0.0f : a.dropout.scale / total;
    if (lse && t == 0 && row < item.queries)
      lse[(item.query + row) * a.heads + item.head] = empty ? 0.0f : high * kLn2 + logf(total);
  }
  if (dropping) {
#pragma unroll
    for (int n = 0; n < 2 * Groups; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int i = row0 + g + 8 * (e / 2), j = 8 * n + 2 * t + e % 2;
        if (i < item.queries && j < item.keys && !kept.keeps(i, j)) s[n][e] = 0;
      }
  }

  float gathered[D / 8][4];
#pragma unroll
  for (int n = 0; n < D / 8; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) gathered[n][e] = 0;
#pragma unroll
  for (int kk = 0; kk < Groups; ++kk) {
    if (kk >= key_groups) continue;
    const Quad left = as_left(s[2 * kk], s[2 * kk + 1]);
#pragma unroll
    for (int n = 0; n < D / 16; ++n) {
      const Quad right = load_right_columns(v_tile, 16 * kk, n);
      multiply_add(gathered[2 * n], left, right.x[0], right.x[1]);
      multiply_add(gathered[2 * n + 1], left, right.x[2], right.x[3]);
    }
  }
  // Only this warp reads these rows of the queries.
  const int64_t out_stride = a.heads * width;
  store_rows<D>(q_tile, row0, gathered, normalise[0], normalise[1],
                out + item.query * out_stride + column, out_stride, item.queries, width, false);
}

}  // namespace

int32_t attention_short_forward(DeviceState& device, const AttentionForwardParams& p) {
  const int groups = short_groups(p);
  return with_short_kernel(p, groups, [&](auto columns, auto most) {
    constexpr int D = decltype(columns)::value, Groups = decltype(most)::value;
    const int rows = 16 * groups;
    static_assert(16 * Groups * (3 * D * 2 + KeptBits::kPitch) <= kLeastSharedMemory);
    const int bytes = 3 * rows * D * 2 + (p.dropout.active() ? rows * KeptBits::kPitch : 0);
    return launch_attention(device, "attention_forward", short_forward_kernel<D, Groups>,
                            p.sequences * p.heads, 32 * groups, static_cast<size_t>(bytes),
                            AttentionProblem::of(device, p), rows, static_cast<const bf16*>(p.q),
                            static_cast<const bf16*>(p.k), static_cast<const bf16*>(p.v),
                            static_cast<bf16*>(p.out), static_cast<float*>(p.lse));
  });
}

}  // namespace trafo::cuda
