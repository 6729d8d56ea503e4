// Attention on the CUDA cores in float32: every dtype, any head_dim up to 256.
#include "engine/ops/attention/attention_cuda.cuh"

namespace trafo::cuda {
namespace {

// 16 x 16 threads; thread (tx, ty) owns rows ty + 16 i of a tile.
constexpr int kThreads = 256;

// Elements from row to row of a tile in shared memory.
__host__ __device__ constexpr int pitch_of(int width) {
  return static_cast<int>(cuda_cores_pitch(width));
}
__host__ __device__ constexpr int score_pitch(int rows) {
  return static_cast<int>(cuda_cores_score_pitch(rows));
}

// Rows of x into a tile; zeros after `rows` and `width`.
template <class T, int Rows>
__device__ __forceinline__ void load_tile(const T* x, int64_t stride, int rows, int width,
                                          bool vectors, float* tile, int pitch) {
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  for (int r = ty; r < Rows; r += 16)
    for (int c = 4 * tx; c < pitch; c += 64) {
      float4 value = make_float4(0, 0, 0, 0);
      const T* from = x + r * stride + c;
      if (r < rows && c < width) {
        if (vectors) {
          const Pack<T, 4> pack = load_pack<T, 4>(from);
          value = make_float4(to_float(pack.v[0]), to_float(pack.v[1]), to_float(pack.v[2]),
                              to_float(pack.v[3]));
        } else {
          value.x = to_float(from[0]);
          if (c + 1 < width) value.y = to_float(from[1]);
          if (c + 2 < width) value.z = to_float(from[2]);
          if (c + 3 < width) value.w = to_float(from[3]);
        }
      }
      *reinterpret_cast<float4*>(tile + r * pitch + c) = value;
    }
}

__device__ __forceinline__ float4 quad(const float* p) {
  return *reinterpret_cast<const float4*>(p);
}

// s[i][j] = row ty + 16 i of a times row tx + 16 j of b.
template <int N>
__device__ __forceinline__ void dot_rows(const float* a, const float* b, int pitch, int width,
                                         float (&s)[N][N]) {
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
#pragma unroll
  for (int i = 0; i < N; ++i)
#pragma unroll
    for (int j = 0; j < N; ++j) s[i][j] = 0;
  for (int c = 0; c < width; c += 4) {
    float4 x[N], y[N];
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = quad(a + (ty + 16 * i) * pitch + c);
#pragma unroll
    for (int j = 0; j < N; ++j) y[j] = quad(b + (tx + 16 * j) * pitch + c);
#pragma unroll
    for (int i = 0; i < N; ++i)
#pragma unroll
      for (int j = 0; j < N; ++j) {
        s[i][j] = fmaf(x[i].x, y[j].x, s[i][j]);
        s[i][j] = fmaf(x[i].y, y[j].y, s[i][j]);
        s[i][j] = fmaf(x[i].z, y[j].z, s[i][j]);
        s[i][j] = fmaf(x[i].w, y[j].w, s[i][j]);
      }
  }
}

// sum[i][4 g .. 4 g + 3] += row ty + 16 i of a times columns 4 tx + 64 g .. of b [depth, pitch]. In
// runs: few roundings happen at the size of the whole sum.
template <int N, int Groups>
__device__ __forceinline__ void multiply_tile(const float* a, int row_step, int depth_step,
                                              int depth, const float* b, int pitch,
                                              float (&sum)[N][4 * Groups]) {
  constexpr int kRun = 16;
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  for (int first = 0; first < depth; first += kRun) {
    const int end = min(depth, first + kRun);
    float run[N][4 * Groups] = {};
#pragma unroll 4
    for (int d = first; d < end; ++d) {
      float x[N];
#pragma unroll
      for (int i = 0; i < N; ++i) x[i] = a[(ty + 16 * i) * row_step + d * depth_step];
#pragma unroll
      for (int g = 0; g < Groups; ++g) {
        const int c = 4 * tx + 64 * g;
        if (c >= pitch) continue;
        const float4 y = quad(b + d * pitch + c);
#pragma unroll
        for (int i = 0; i < N; ++i) {
          run[i][4 * g] = fmaf(x[i], y.x, run[i][4 * g]);
          run[i][4 * g + 1] = fmaf(x[i], y.y, run[i][4 * g + 1]);
          run[i][4 * g + 2] = fmaf(x[i], y.z, run[i][4 * g + 2]);
          run[i][4 * g + 3] = fmaf(x[i], y.w, run[i][4 * g + 3]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < N; ++i)
#pragma unroll
      for (int c = 0; c < 4 * Groups; ++c) sum[i][c] += run[i][c];
  }
}

// Rows below `rows` of a tile of sums to x, times `factor`.
template <class T, int N, int Groups>
__device__ __forceinline__ void store_tile(const float (&sum)[N][4 * Groups],
                                           const float (&factor)[N], int rows, int width,
                                           bool accumulate, T* x, int64_t stride) {
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int r = ty + 16 * i;
    if (r >= rows) continue;
#pragma unroll
    for (int g = 0; g < Groups; ++g)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int c = 4 * tx + 64 * g + e;
        if (c >= width) continue;
        T* to = x + r * stride + c;
        const float value = sum[i][4 * g + e] * factor[i];
        *to = from_float<T>(accumulate ? to_float(*to) + value : value);
      }
  }
}

// Over the 16 threads that share rows.
template <class Fn>
__device__ __forceinline__ float across_columns(float x, Fn&& fn) {
#pragma unroll
  for (int offset = 8; offset > 0; offset /= 2) x = fn(x, __shfl_xor_sync(0xffffffffu, x, offset));
  return x;
}

// A block for each tile of queries.
template <class T, int Tile, int Groups>
__global__ void __launch_bounds__(kThreads, 1)
    forward_kernel(AttentionProblem a, int64_t tiles, bool vectors, const T* __restrict__ q_all,
                   const T* __restrict__ k_all, const T* __restrict__ v_all, T* __restrict__ out,
                   float* __restrict__ lse) {
  constexpr int N = Tile / 16;
  extern __shared__ float4 shared[];
  const int width = static_cast<int>(a.head_dim), pitch = pitch_of(width);
  float* q_tile = reinterpret_cast<float*>(shared);
  float* kv_tile = q_tile + Tile * pitch;  // keys, then values
  float* p_tile = kv_tile + Tile * pitch;
  constexpr int kScorePitch = score_pitch(Tile);

  const AttentionItem item = AttentionItem::of_block(a, tiles);
  const int q0 = static_cast<int>(item.tile) * Tile;
  if (q0 >= item.queries) return;
  const int queries = min(Tile, item.queries - q0);
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  const int64_t column = item.head * width, kv_column = item.kv_head * width;
  const T* k = k_all + item.key * a.k_stride + kv_column;
  const T* v = v_all + item.key * a.v_stride + kv_column;
  load_tile<T, Tile>(q_all + (item.query + q0) * a.q_stride + column, a.q_stride, queries, width,
                     vectors, q_tile, pitch);

  float maximum[N], sum[N], gathered[N][4 * Groups];
#pragma unroll
  for (int i = 0; i < N; ++i) {
    // From the lowest finite number and not -infinity: exp(-infinity - maximum) is then 0 and not
    // NaN.
    maximum[i] = -3.402823466e38f;
    sum[i] = 0;
#pragma unroll
    for (int c = 0; c < 4 * Groups; ++c) gathered[i][c] = 0;
  }
  const int keys_end = item.visible(a, q0 + queries - 1);
  for (int k0 = item.first(a, q0) / Tile * Tile; k0 < keys_end; k0 += Tile) {
    const int keys = min(Tile, item.keys - k0);
    __syncthreads();
    load_tile<T, Tile>(k + k0 * a.k_stride, a.k_stride, keys, width, vectors, kv_tile, pitch);
    __syncthreads();
    float s[N][N];
    dot_rows<N>(q_tile, kv_tile, pitch, width, s);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const int query = q0 + ty + 16 * i;
      const int visible = item.visible(a, query), first = item.first(a, query);
      float high = maximum[i];
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const int key = k0 + tx + 16 * j;
        s[i][j] = key >= first && key < visible ? item.score<T>(a, s[i][j], query, key) : -INFINITY;
        high = fmaxf(high, s[i][j]);
      }
      high = across_columns(high, [](float x, float y) { return fmaxf(x, y); });
      const float shrink = sum[i] > 0 ? expf(maximum[i] - high) : 1.0f;
      float part = 0;
#pragma unroll
      for (int j = 0; j < N; ++j) {
        float p = expf(s[i][j] - high);
        part += p;
        if (a.dropout.threshold != 0)
          p *= dropout_factor_at(a.dropout, item.dropout_row(a, query) + k0 + tx + 16 * j);
        p_tile[(ty + 16 * i) * kScorePitch + tx + 16 * j] = p;
      }
      sum[i] = fmaf(sum[i], shrink, across_columns(part, [](float x, float y) { return x + y; }));
      maximum[i] = high;
#pragma unroll
      for (int c = 0; c < 4 * Groups; ++c) gathered[i][c] *= shrink;
    }
    __syncthreads();
    load_tile<T, Tile>(v + k0 * a.v_stride, a.v_stride, keys, width, vectors, kv_tile, pitch);
    __syncthreads();
    multiply_tile<N, Groups>(p_tile, kScorePitch, 1, keys, kv_tile, pitch, gathered);
  }

  float normalise[N];
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const bool empty = sum[i] == 0;  // a sum that is NaN must reach the output
    normalise[i] = empty ? 0.0f : 1.0f / sum[i];
    const int r = ty + 16 * i;
    if (lse && tx == 0 && r < queries)
      lse[(item.query + q0 + r) * a.heads + item.head] = empty ? 0.0f : maximum[i] + logf(sum[i]);
  }
  const int64_t out_stride = a.heads * width;
  store_tile<T, N, Groups>(gathered, normalise, queries, width, false,
                           out + (item.query + q0) * out_stride + column, out_stride);
}

// Probabilities with dropout and gradients of the scores of one tile, both [query, key], from q k^T
// and dout v^T.
template <class T, int N>
__device__ __forceinline__ void score_gradients(const AttentionProblem& a,
                                                const AttentionItem& item, int q0, int k0,
                                                const float (&s)[N][N], const float (&dp)[N][N],
                                                const float* lse, const float* delta, float* p_tile,
                                                float* ds_tile) {
  constexpr int kScorePitch = score_pitch(16 * N);
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int query = q0 + ty + 16 * i;
    const bool exists = query < item.queries;
    const int visible = exists ? item.visible(a, query) : 0, first = item.first(a, query);
    const int64_t at = (item.query + query) * a.heads + item.head;
    const float log_sum = exists ? lse[at] : 0.0f;
    const float row_delta = exists ? delta[at] : 0.0f;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const int key = k0 + tx + 16 * j;
      float p = 0, ds = 0;
      if (key >= first && key < visible) {
        // The score is rounded as it was in forward: the rest of its error cancels with the error
        // of log_sum, and the only key of a row gets exactly 1.
        const float score = item.score<T>(a, s[i][j], query, key);
        p = expf(score - log_sum);
        float gradient = dp[i][j], dropped = p;
        if (a.dropout.threshold != 0) {
          const float factor = dropout_factor_at(a.dropout, item.dropout_row(a, query) + key);
          gradient *= factor;
          dropped *= factor;
        }
        // The probability of an only key is constant. The difference, of two sums in different
        // orders, would be their rounding errors.
        ds = visible - first == 1 ? 0.0f
                                  : p * (gradient - row_delta) * AttentionItem::slope(a, score);
        p = dropped;
      }
      const int place = (ty + 16 * i) * kScorePitch + tx + 16 * j;
      if (p_tile) p_tile[place] = p;
      ds_tile[place] = ds;
    }
  }
}

// Adds the diagonals of a tile of gradients of scores to the block's part of the gradient of the
// biases: the distance is the same along each.
template <int Tile>
__device__ __forceinline__ void add_diagonals(const AttentionProblem& a, const AttentionItem& item,
                                              int q0, int k0, const float* ds_tile, float* part) {
  const int diagonal = static_cast<int>(threadIdx.x) - (Tile - 1);  // key - query, in the tile
  const int column = item.bias_column(a, q0, k0) + diagonal;
  if (diagonal >= Tile || column < 0 || column >= a.bias_columns) return;
  float sum = 0;
  const int first = max(0, -diagonal), end = Tile - max(0, diagonal);
  for (int i = first; i < end; ++i) sum += ds_tile[i * score_pitch(Tile) + i + diagonal];
  part[column] += sum / a.scale;
}

// A block for each tile of keys.
template <class T, int Tile, int Groups>
__global__ void __launch_bounds__(kThreads, 1)
    key_gradients_kernel(AttentionProblem a, AttentionGradients g, int64_t tiles, bool vectors,
                         const T* __restrict__ q_all, const T* __restrict__ k_all,
                         const T* __restrict__ v_all, const T* __restrict__ dout_all,
                         const float* __restrict__ lse, const float* __restrict__ delta) {
  constexpr int N = Tile / 16;
  constexpr int kScorePitch = score_pitch(Tile);
  extern __shared__ float4 shared[];
  const int width = static_cast<int>(a.head_dim), pitch = pitch_of(width);
  float* k_tile = reinterpret_cast<float*>(shared);
  float* v_tile = k_tile + Tile * pitch;
  float* q_tile = v_tile + Tile * pitch;
  float* dout_tile = q_tile + Tile * pitch;
  float* p_tile = dout_tile + Tile * pitch;
  float* ds_tile = p_tile + Tile * kScorePitch;

  const AttentionItem item = AttentionItem::of_block(a, tiles);
  const int k0 = static_cast<int>(item.tile) * Tile;
  if (k0 >= item.keys) return;
  const int keys = min(Tile, item.keys - k0);
  const int64_t column = item.head * width, kv_column = item.kv_head * width,
                out_stride = a.heads * width;
  load_tile<T, Tile>(k_all + (item.key + k0) * a.k_stride + kv_column, a.k_stride, keys, width,
                     vectors, k_tile, pitch);
  load_tile<T, Tile>(v_all + (item.key + k0) * a.v_stride + kv_column, a.v_stride, keys, width,
                     vectors, v_tile, pitch);
  float dk[N][4 * Groups], dv[N][4 * Groups], one[N];
#pragma unroll
  for (int i = 0; i < N; ++i) {
    one[i] = 1;
#pragma unroll
    for (int c = 0; c < 4 * Groups; ++c) dk[i][c] = dv[i][c] = 0;
  }
  for (int q0 = 0; q0 < item.queries; q0 += Tile) {
    const int queries = min(Tile, item.queries - q0);
    if (item.visible(a, q0 + queries - 1) <= k0) continue;
    if (item.first(a, q0) >= k0 + keys) break;
    __syncthreads();
    load_tile<T, Tile>(q_all + (item.query + q0) * a.q_stride + column, a.q_stride, queries, width,
                       vectors, q_tile, pitch);
    load_tile<T, Tile>(dout_all + (item.query + q0) * out_stride + column, out_stride, queries,
                       width, vectors, dout_tile, pitch);
    __syncthreads();
    float s[N][N], dp[N][N];
    dot_rows<N>(q_tile, k_tile, pitch, width, s);
    dot_rows<N>(dout_tile, v_tile, pitch, width, dp);
    score_gradients<T, N>(a, item, q0, k0, s, dp, lse, delta, p_tile, ds_tile);
    __syncthreads();
    if (g.dv) multiply_tile<N, Groups>(p_tile, 1, kScorePitch, queries, dout_tile, pitch, dv);
    if (g.dk) multiply_tile<N, Groups>(ds_tile, 1, kScorePitch, queries, q_tile, pitch, dk);
  }
  if (g.dk)
    store_tile<T, N, Groups>(dk, one, keys, width, g.accumulate_dk,
                             static_cast<T*>(g.dk) + (item.key + k0) * g.dk_stride + column,
                             g.dk_stride);
  if (g.dv)
    store_tile<T, N, Groups>(dv, one, keys, width, g.accumulate_dv,
                             static_cast<T*>(g.dv) + (item.key + k0) * g.dv_stride + column,
                             g.dv_stride);
}

// A block for each tile of queries.
template <class T, int Tile, int Groups>
__global__ void __launch_bounds__(kThreads, 1)
    query_gradients_kernel(AttentionProblem a, AttentionGradients g, int64_t tiles, bool vectors,
                           const T* __restrict__ q_all, const T* __restrict__ k_all,
                           const T* __restrict__ v_all, const T* __restrict__ dout_all,
                           const float* __restrict__ lse, const float* __restrict__ delta) {
  constexpr int N = Tile / 16;
  constexpr int kScorePitch = score_pitch(Tile);
  extern __shared__ float4 shared[];
  const int width = static_cast<int>(a.head_dim), pitch = pitch_of(width);
  float* q_tile = reinterpret_cast<float*>(shared);
  float* dout_tile = q_tile + Tile * pitch;
  float* k_tile = dout_tile + Tile * pitch;
  float* v_tile = k_tile + Tile * pitch;
  float* ds_tile = v_tile + Tile * pitch;

  const AttentionItem item = AttentionItem::of_block(a, tiles);
  const int q0 = static_cast<int>(item.tile) * Tile;
  if (q0 >= item.queries) return;
  const int queries = min(Tile, item.queries - q0);
  const int64_t column = item.head * width, kv_column = item.kv_head * width,
                out_stride = a.heads * width;
  load_tile<T, Tile>(q_all + (item.query + q0) * a.q_stride + column, a.q_stride, queries, width,
                     vectors, q_tile, pitch);
  load_tile<T, Tile>(dout_all + (item.query + q0) * out_stride + column, out_stride, queries, width,
                     vectors, dout_tile, pitch);
  float dq[N][4 * Groups], one[N];
#pragma unroll
  for (int i = 0; i < N; ++i) {
    one[i] = 1;
#pragma unroll
    for (int c = 0; c < 4 * Groups; ++c) dq[i][c] = 0;
  }
  const int keys_end = item.visible(a, q0 + queries - 1);
  for (int k0 = item.first(a, q0) / Tile * Tile; k0 < keys_end; k0 += Tile) {
    const int keys = min(Tile, item.keys - k0);
    __syncthreads();
    load_tile<T, Tile>(k_all + (item.key + k0) * a.k_stride + kv_column, a.k_stride, keys, width,
                       vectors, k_tile, pitch);
    load_tile<T, Tile>(v_all + (item.key + k0) * a.v_stride + kv_column, a.v_stride, keys, width,
                       vectors, v_tile, pitch);
    __syncthreads();
    float s[N][N], dp[N][N];
    dot_rows<N>(q_tile, k_tile, pitch, width, s);
    dot_rows<N>(dout_tile, v_tile, pitch, width, dp);
    score_gradients<T, N>(a, item, q0, k0, s, dp, lse, delta, nullptr, ds_tile);
    __syncthreads();
    if (g.bias_parts)
      add_diagonals<Tile>(
          a, item, q0, k0, ds_tile,
          g.bias_parts +
              ((item.sequence * tiles + item.tile) * a.heads + item.head) * a.bias_columns);
    multiply_tile<N, Groups>(ds_tile, kScorePitch, 1, keys, k_tile, pitch, dq);
  }
  if (g.dq)
    store_tile<T, N, Groups>(dq, one, queries, width, g.accumulate_dq,
                             static_cast<T*>(g.dq) + (item.query + q0) * g.dq_stride + column,
                             g.dq_stride);
}

// delta = sum_j P_ij dP_ij = dO_i . O_i of each row and head, with dropout too (Dao et al., arXiv
// 2205.14135, section 3.1). A warp for each.
template <class T>
__global__ void __launch_bounds__(kThreads)
    delta_kernel(int64_t count, int64_t width, const T* __restrict__ out,
                 const T* __restrict__ dout, float* __restrict__ delta) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32;
  if (i >= count) return;
  float sum = 0;
  for (int64_t c = threadIdx.x % 32; c < width; c += 32)
    sum = fmaf(to_float(out[i * width + c]), to_float(dout[i * width + c]), sum);
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  if (threadIdx.x % 32 == 0) delta[i] = sum;
}

template <class T, int Tile, int Groups>
int32_t run_forward(DeviceState& device, const AttentionForwardParams& p) {
  const int64_t tiles = (p.max_queries + Tile - 1) / Tile;
  const auto bytes = static_cast<size_t>(cuda_cores_bytes(p.head_dim, false, Tile));
  const bool vectors =
      rows_of_quads<T>(p.head_dim, {p.q, p.k, p.v}, {p.q_stride, p.k_stride, p.v_stride});
  return launch_attention(
      device, "attention_forward", forward_kernel<T, Tile, Groups>, p.sequences * p.heads * tiles,
      kThreads, bytes, AttentionProblem::of(device, p), tiles, vectors, static_cast<const T*>(p.q),
      static_cast<const T*>(p.k), static_cast<const T*>(p.v), static_cast<T*>(p.out),
      static_cast<float*>(p.lse));
}

template <class T, int Tile, int Groups>
int32_t run_backward(DeviceState& device, const AttentionBackwardParams& p, const float* delta) {
  const auto bytes = static_cast<size_t>(cuda_cores_bytes(p.head_dim, true, Tile));
  const bool vectors =
      rows_of_quads<T>(p.head_dim, {p.q, p.k, p.v, p.dout}, {p.q_stride, p.k_stride, p.v_stride});
  const auto run = [&](auto kernel, int64_t rows) {
    const int64_t tiles = (rows + Tile - 1) / Tile;
    return launch_attention(device, "attention_backward", kernel, p.sequences * p.heads * tiles,
                            kThreads, bytes, AttentionProblem::of(device, p),
                            attention_gradients(p), tiles, vectors, static_cast<const T*>(p.q),
                            static_cast<const T*>(p.k), static_cast<const T*>(p.v),
                            static_cast<const T*>(p.dout), static_cast<const float*>(p.lse), delta);
  };
  int32_t result = kSuccess;
  if ((p.dk || p.dv) && p.max_keys > 0)
    result = run(key_gradients_kernel<T, Tile, Groups>, p.max_keys);
  if (result == kSuccess && (p.dq || p.bias_parts) && p.max_queries > 0)
    result = run(query_gradients_kernel<T, Tile, Groups>, p.max_queries);
  return result;
}

}  // namespace

// Tiles that no supported card chooses are not compiled.
int32_t attention_forward_cores(DeviceState& device, const AttentionForwardParams& p) {
  const int64_t shared = static_cast<int64_t>(device.shared_memory_per_block);
  static_assert(cuda_cores_rows(128, false, kLeastSharedMemory) == 64 &&
                cuda_cores_rows(kCudaHeadDim, false, kLeastSharedMemory) == 32);
  const bool whole = cuda_cores_rows(p.head_dim, false, shared) == 64;
  int32_t result = kSuccess;
  with_device_type(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    result = p.head_dim <= 64    ? run_forward<T, 64, 1>(device, p)
             : p.head_dim <= 128 ? run_forward<T, 64, 2>(device, p)
             : whole             ? run_forward<T, 64, 4>(device, p)
                                 : run_forward<T, 32, 4>(device, p);
  });
  return result;
}

int32_t attention_backward_cores(DeviceState& device, const AttentionBackwardParams& p,
                                 const float* delta) {
  const int64_t shared = static_cast<int64_t>(device.shared_memory_per_block);
  static_assert(cuda_cores_rows(64, true, kLeastSharedMemory) == 32 &&
                cuda_cores_rows(128, true, kLeastSharedMemory) == 32 &&
                cuda_cores_rows(kCudaHeadDim, true, kLeastSharedMemory) == 16);
  const int64_t rows = cuda_cores_rows(p.head_dim, true, shared);
  int32_t result = kSuccess;
  with_device_type(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (p.head_dim <= 64)
      result = rows == 64 ? run_backward<T, 64, 1>(device, p, delta)
                          : run_backward<T, 32, 1>(device, p, delta);
    else if (p.head_dim <= 128)
      result = run_backward<T, 32, 2>(device, p, delta);
    else
      result = rows == 32 ? run_backward<T, 32, 4>(device, p, delta)
                          : run_backward<T, 16, 4>(device, p, delta);
  });
  return result;
}

int32_t attention_make_delta(DeviceState& device, const AttentionBackwardParams& p, float* delta) {
  const int64_t count = p.query_rows * p.heads;
  if (count == 0) return kSuccess;
  constexpr int kWarps = kThreads / 32;
  with_device_type(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    delta_kernel<T>
        <<<static_cast<unsigned>((count + kWarps - 1) / kWarps), kThreads, 0, device.stream>>>(
            count, p.head_dim, static_cast<const T*>(p.out), static_cast<const T*>(p.dout), delta);
  });
  return launched(device, "attention_backward");
}

}  // namespace trafo::cuda
