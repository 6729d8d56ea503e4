// Attention of one query a sequence. The time goes into reading keys and values.
#include "engine/backend/cuda/device/reduce.cuh"
#include "engine/ops/attention/attention_cuda.cuh"

namespace trafo::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;

template <class T>
__device__ __forceinline__ float dot(const T* row, const float* query, int width, bool vectors) {
  float sum = 0;
  if (vectors) {
#pragma unroll 8
    for (int c = 0; c < width; c += 4) {
      const Pack<T, 4> pack = load_pack<T, 4>(row + c);
#pragma unroll
      for (int j = 0; j < 4; ++j) sum = fmaf(to_float(pack.v[j]), query[c + j], sum);
    }
  } else {
    for (int c = 0; c < width; ++c) sum = fmaf(to_float(row[c]), query[c], sum);
  }
  return sum;
}

// A block for each query head of each sequence; the blocks of a group read the same keys and
// values, which the L2 cache then holds. A warp takes 32 keys at a time: first a lane for each key,
// then a lane for every 32nd column of the values. The warps' results are merged at the end.
template <class T>
__global__ void __launch_bounds__(kThreads)
    decode_kernel(AttentionProblem a, bool vectors, const T* __restrict__ q_all,
                  const T* __restrict__ k_all, const T* __restrict__ v_all, T* __restrict__ out,
                  float* __restrict__ lse) {
  constexpr int kColumns = static_cast<int>(kCudaHeadDim) / 32;
  __shared__ float query[kCudaHeadDim], gathered[kWarps][kCudaHeadDim];
  __shared__ float maxima[kWarps], sums[kWarps];
  const AttentionItem item = AttentionItem::of_block(a, 1);
  if (item.queries == 0) return;
  const int width = static_cast<int>(a.head_dim);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t column = item.head * width, kv_column = item.kv_head * width;
  const T* k = k_all + item.key * a.k_stride + kv_column;
  const T* v = v_all + item.key * a.v_stride + kv_column;
  for (int c = threadIdx.x; c < width; c += kThreads)
    query[c] = to_float(q_all[item.query * a.q_stride + column + c]);
  __syncthreads();

  // From the lowest finite number and not -infinity: exp(-infinity - maximum) is then 0 and not
  // NaN.
  float maximum = Max::kIdentity, sum = 0, part[kColumns];
#pragma unroll
  for (int c = 0; c < kColumns; ++c) part[c] = 0;
  for (int k0 = item.first(a, 0) + 32 * warp; k0 < item.keys; k0 += kThreads) {
    const int key = k0 + lane;
    const float score =
        key < item.keys ? item.score<T>(a, dot(k + key * a.k_stride, query, width, vectors), 0, key)
                        : -INFINITY;
    const float high = fmaxf(maximum, warp_reduce<Max>(score));
    const float p = expf(score - high);
    const float shrink = expf(maximum - high);
    sum = fmaf(sum, shrink, warp_reduce<Add>(p));
    maximum = high;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) part[c] *= shrink;
    const int keys = min(32, item.keys - k0);
#pragma unroll 4
    for (int j = 0; j < keys; ++j) {
      const float weight = __shfl_sync(0xffffffffu, p, j);
      const T* row = v + (k0 + j) * a.v_stride;
#pragma unroll
      for (int c = 0; c < kColumns; ++c)
        if (32 * c + lane < width) part[c] = fmaf(weight, to_float(row[32 * c + lane]), part[c]);
    }
  }
#pragma unroll
  for (int c = 0; c < kColumns; ++c)
    if (32 * c + lane < width) gathered[warp][32 * c + lane] = part[c];
  if (lane == 0) {
    maxima[warp] = maximum;
    sums[warp] = sum;
  }
  __syncthreads();

  float high = maxima[0];
#pragma unroll
  for (int w = 1; w < kWarps; ++w) high = fmaxf(high, maxima[w]);
  float factor[kWarps], total = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    factor[w] = expf(maxima[w] - high);
    total = fmaf(sums[w], factor[w], total);
  }
  const bool empty = total == 0;  // a sum that is NaN must reach the output
  for (int c = threadIdx.x; c < width; c += kThreads) {
    float value = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) value = fmaf(gathered[w][c], factor[w], value);
    out[item.query * a.heads * width + column + c] = from_float<T>(empty ? 0.0f : value / total);
  }
  if (lse && threadIdx.x == 0)
    lse[item.query * a.heads + item.head] = empty ? 0.0f : high + logf(total);
}

}  // namespace

int32_t attention_decode_forward(DeviceState& device, const AttentionForwardParams& p) {
  int32_t result = kSuccess;
  const bool known = with_device_type(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    result = launch_attention(
        device, "attention_forward", decode_kernel<T>, p.sequences * p.heads, kThreads, 0,
        AttentionProblem::of(device, p), rows_of_quads<T>(p.head_dim, {p.k}, {p.k_stride}),
        static_cast<const T*>(p.q), static_cast<const T*>(p.k), static_cast<const T*>(p.v),
        static_cast<T*>(p.out), static_cast<float*>(p.lse));
  });
  return known ? result : unsupported(device, "attention: CUDA has float32 and bfloat16");
}

}  // namespace trafo::cuda
