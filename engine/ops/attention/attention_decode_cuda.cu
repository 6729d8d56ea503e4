// Attention of one query a sequence. The time goes into reading keys and values.
#include "engine/backend/cuda/device/elementwise.cuh"
#include "engine/backend/cuda/device/mma.cuh"
#include "engine/backend/cuda/device/reduce.cuh"
#include "engine/ops/attention/attention_cuda.cuh"

namespace trafo::cuda {
namespace {

// The softmax of a query over keys that are met one by one: the sum of the values so far, with the
// weights that belong to the largest score so far.
template <int kColumns>
struct OnlineSoftmax {
  // From the lowest finite number and not -infinity: exp(-infinity - maximum) is then 0 and not
  // NaN.
  float maximum = Max::kIdentity, sum = 0, values[kColumns] = {};

  // Makes room for scores up to `score`.
  __device__ __forceinline__ void raise(float score) {
    const float high = fmaxf(maximum, score);
    const float shrink = expf(maximum - high);
    sum *= shrink;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) values[c] *= shrink;
    maximum = high;
  }
  __device__ __forceinline__ float weight(float score) {
    const float p = expf(score - maximum);
    sum += p;
    return p;
  }
  // Adds what the lane `lane ^ mask` has, which does the same.
  __device__ __forceinline__ void add_lane(int mask) {
    raise(__shfl_xor_sync(0xffffffffu, maximum, mask));
    sum += __shfl_xor_sync(0xffffffffu, sum, mask);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) values[c] += __shfl_xor_sync(0xffffffffu, values[c], mask);
  }
};

// The sums of one head that the warps of a block have, which are merged in their order.
template <int kWarps, int kWidth>
struct WarpParts {
  float maxima[kWarps], sums[kWarps], values[kWarps][kWidth];

  // Writes the head's `width` elements of out, and lse if there is one. By a warp.
  template <class T>
  __device__ __forceinline__ void write(T* out, float* lse, int width, int lane) const {
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
    for (int c = lane; c < width; c += 32) {
      float value = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) value = fmaf(values[w][c], factor[w], value);
      out[c] = from_float<T>(empty ? 0.0f : value / total);
    }
    if (lse && lane == 0) *lse = empty ? 0.0f : high + logf(total);
  }
};

// The part of a block: up to kHeads query heads of a sequence that share keys and values.
template <int kHeads>
struct GroupItem {
  AttentionItem item;  // of the first head
  int heads;

  static int64_t blocks(const AttentionForwardParams& p) {
    return p.sequences * p.kv_heads * ((p.heads / p.kv_heads + kHeads - 1) / kHeads);
  }
  static __device__ __forceinline__ GroupItem of_block(const AttentionProblem& a) {
    const uint32_t blocks_of_group = (a.group + kHeads - 1) / kHeads;
    const uint32_t row = blockIdx.x / blocks_of_group, part = blockIdx.x % blocks_of_group * kHeads;
    const uint32_t heads = static_cast<uint32_t>(a.heads), kv_heads = heads / a.group;
    const uint32_t first = row / kv_heads * heads + row % kv_heads * a.group + part;
    return {AttentionItem::numbered(a, 1, first), min(kHeads, static_cast<int>(a.group - part))};
  }
};

constexpr int kGroupWarps = 8, kGroupThreads = 32 * kGroupWarps;

// On tensor cores. The rows of their products are the heads of a group, up to eight of 16; a warp
// takes 16 keys at a time. The bits of a head depend on no other head or sequence.
//
// Scores: lane 4 g + q reads eight neighbours of key 8 j + g from 8 q on, takes the first four for
// one mma and the others for the next one, and reads the query of head g in the same way: a sum
// does not mind the order of its terms. It gets the scores of head g and keys 8 j + 2 q and
// 8 j + 2 q + 1, which is where the next product wants its weights. Values: column n of tile t of
// 64 columns is 8 n + t, so that a lane reads eight neighbours of a value, too.
constexpr int kMmaHeads = 8, kMmaKeys = 16;

template <int kDims>
__global__ void __launch_bounds__(kGroupThreads, kDims == 64 ? 2 : 1)
    mma_kernel(AttentionProblem a, const bf16* __restrict__ q_all, const bf16* __restrict__ k_all,
               const bf16* __restrict__ v_all, bf16* __restrict__ out, float* __restrict__ lse) {
  constexpr int kWordsOfKey = kDims / 32, kWordsOfValue = kDims / 64;  // of 16 bytes, for a lane
  __shared__ WarpParts<kGroupWarps, kDims> parts[kMmaHeads];
  const auto [item, heads] = GroupItem<kMmaHeads>::of_block(a);
  if (item.queries == 0) return;
  const int width = static_cast<int>(a.head_dim);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, q = lane % 4;
  const bf16* k = k_all + item.key * a.k_stride + item.kv_head * width;
  const bf16* v = v_all + item.key * a.v_stride + item.kv_head * width;
  const auto load = [width](const bf16* row, bool is_there, int column) {
    return is_there && column < width ? *reinterpret_cast<const uint4*>(row + column) : uint4{};
  };
  AttentionItem of_head = item;
  of_head.head += min(g, heads - 1);
  uint4 query[kWordsOfKey];
#pragma unroll
  for (int i = 0; i < kWordsOfKey; ++i)
    query[i] =
        load(q_all + item.query * a.q_stride + of_head.head * width, g < heads, 32 * i + 8 * q);

  float maximum = Max::kIdentity, sum = 0, mixed[8 * kWordsOfValue][4] = {};
  for (int k0 = item.first(a, 0) + kMmaKeys * warp; k0 < item.keys; k0 += kMmaKeys * kGroupWarps) {
    uint4 keys[2][kWordsOfKey], values[4][kWordsOfValue];
#pragma unroll
    for (int j = 0; j < 2; ++j)
#pragma unroll
      for (int i = 0; i < kWordsOfKey; ++i) {
        const int key = k0 + 8 * j + g;
        keys[j][i] = load(k + key * a.k_stride, key < item.keys, 32 * i + 8 * q);
      }
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int i = 0; i < kWordsOfValue; ++i) {
        const int key = k0 + 8 * (j / 2) + 2 * q + j % 2;
        values[j][i] = load(v + key * a.v_stride, key < item.keys, 64 * i + 8 * g);
      }
    float scores[2][4] = {};
#pragma unroll
    for (int i = 0; i < kWordsOfKey; ++i) {
      const uint32_t first[4] = {query[i].x, 0, query[i].y, 0};
      const uint32_t second[4] = {query[i].z, 0, query[i].w, 0};
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        mma_bf16(scores[j], first, keys[j][i].x, keys[j][i].y);
        mma_bf16(scores[j], second, keys[j][i].z, keys[j][i].w);
      }
    }
    float high = maximum;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int key = k0 + 8 * (j / 2) + 2 * q + j % 2;
      float& score = scores[j / 2][j % 2];
      score = key < item.keys ? of_head.score<bf16>(a, score, 0, key) : -INFINITY;
      high = fmaxf(high, score);
    }
#pragma unroll
    for (int mask = 1; mask < 4; mask *= 2)
      high = fmaxf(high, __shfl_xor_sync(0xffffffffu, high, mask));
    const float shrink = expf(maximum - high);
    maximum = high;
    sum *= shrink;
#pragma unroll
    for (int t = 0; t < 8 * kWordsOfValue; ++t)
#pragma unroll
      for (int j = 0; j < 2; ++j) mixed[t][j] *= shrink;
    uint32_t weights[4] = {};
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float first = expf(scores[j][0] - high), second = expf(scores[j][1] - high);
      sum += first + second;
      const __nv_bfloat162 two = __floats2bfloat162_rn(first, second);
      weights[2 * j] = *reinterpret_cast<const uint32_t*>(&two);
    }
#pragma unroll
    for (int i = 0; i < kWordsOfValue; ++i)
#pragma unroll
      for (int t = 0; t < 8; ++t) {
        const auto pair = [&](int j) {
          return __byte_perm((&values[j][i].x)[t / 2], (&values[j + 1][i].x)[t / 2],
                             t % 2 == 0 ? 0x5410 : 0x7632);
        };
        mma_bf16(mixed[8 * i + t], weights, pair(0), pair(2));
      }
  }
#pragma unroll
  for (int mask = 1; mask < 4; mask *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, mask);
#pragma unroll
  for (int i = 0; i < kWordsOfValue; ++i)
#pragma unroll
    for (int t = 0; t < 8; ++t)
#pragma unroll
      for (int j = 0; j < 2; ++j)
        parts[g].values[warp][64 * i + 16 * q + 8 * j + t] = mixed[8 * i + t][j];
  if (q == 0) {
    parts[g].maxima[warp] = maximum;
    parts[g].sums[warp] = sum;
  }
  __syncthreads();
  if (warp >= heads) return;
  const int64_t at = item.query * a.heads + item.head + warp;
  parts[warp].write(out + at * width, lse ? lse + at : nullptr, width, lane);
}

// On CUDA cores, for float32 and wide heads. kLanes lanes have a key or value together, 16 bytes
// each; a warp takes kAhead keys for each such group of lanes at a time, and these and the warps
// have their sums apart until the end. The bits of a head depend neither on kHeads nor on other
// sequences.
constexpr int kAhead = 4;

template <class T, int kLanes, int kHeads>
__global__ void __launch_bounds__(kGroupThreads)
    group_kernel(AttentionProblem a, const T* __restrict__ q_all, const T* __restrict__ k_all,
                 const T* __restrict__ v_all, T* __restrict__ out, float* __restrict__ lse) {
  constexpr int kPack = 16 / static_cast<int>(sizeof(T)), kGroups = 32 / kLanes;
  __shared__ WarpParts<kGroupWarps, kLanes * kPack> parts[kHeads];
  const auto [item, heads] = GroupItem<kHeads>::of_block(a);
  if (item.queries == 0) return;
  const int width = static_cast<int>(a.head_dim);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int group = lane / kLanes, column = lane % kLanes * kPack;
  const bool has_columns = column < width;
  const T* k = k_all + item.key * a.k_stride + item.kv_head * width + column;
  const T* v = v_all + item.key * a.v_stride + item.kv_head * width + column;

  float query[kHeads][kPack] = {};
#pragma unroll
  for (int h = 0; h < kHeads; ++h)
    if (h < heads && has_columns)
      load_floats(q_all + item.query * a.q_stride + (item.head + h) * width + column, query[h]);
  OnlineSoftmax<kPack> softmax[kHeads];
  constexpr int kTile = kGroups * kAhead;
  for (int k0 = item.first(a, 0) + kTile * warp; k0 < item.keys; k0 += kTile * kGroupWarps) {
    Pack<T, kPack> keys[kAhead] = {}, values[kAhead] = {};
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int key = k0 + kGroups * i + group;
      if (!has_columns || key >= item.keys) continue;
      keys[i] = load_pack<T, kPack>(k + key * a.k_stride);
      values[i] = load_pack<T, kPack>(v + key * a.v_stride);
    }
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      if (h >= heads) break;
      AttentionItem of_head = item;
      of_head.head += h;
      float scores[kAhead], high = -INFINITY;
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        float product = 0;
#pragma unroll
        for (int c = 0; c < kPack; ++c)
          product = fmaf(to_float(keys[i].v[c]), query[h][c], product);
#pragma unroll
        for (int mask = kLanes / 2; mask > 0; mask /= 2)
          product += __shfl_xor_sync(0xffffffffu, product, mask);
        const int key = k0 + kGroups * i + group;
        scores[i] = key < item.keys ? of_head.score<T>(a, product, 0, key) : -INFINITY;
        high = fmaxf(high, scores[i]);
      }
      softmax[h].raise(high);
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const float weight = softmax[h].weight(scores[i]);
#pragma unroll
        for (int c = 0; c < kPack; ++c)
          softmax[h].values[c] = fmaf(weight, to_float(values[i].v[c]), softmax[h].values[c]);
      }
    }
  }
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
#pragma unroll
    for (int mask = kLanes; mask < 32; mask *= 2) softmax[h].add_lane(mask);
    if (group == 0) {
#pragma unroll
      for (int c = 0; c < kPack; ++c) parts[h].values[warp][column + c] = softmax[h].values[c];
    }
    if (lane == 0) {
      parts[h].maxima[warp] = softmax[h].maximum;
      parts[h].sums[warp] = softmax[h].sum;
    }
  }
  __syncthreads();
  if (warp >= heads) return;
  const int64_t at = item.query * a.heads + item.head + warp;
  parts[warp].write(out + at * width, lse ? lse + at : nullptr, width, lane);
}

// A block for each query head of each sequence, for rows that are not read in pieces of 16 bytes. A
// warp takes 32 keys at a time: first a lane for each key, then a lane for every 32nd column of the
// values.
constexpr int kWarps = 4, kThreads = 32 * kWarps;

template <class T>
__global__ void __launch_bounds__(kThreads)
    head_kernel(AttentionProblem a, const T* __restrict__ q_all, const T* __restrict__ k_all,
                const T* __restrict__ v_all, T* __restrict__ out, float* __restrict__ lse) {
  constexpr int kColumns = static_cast<int>(kCudaHeadDim) / 32;
  __shared__ float query[kCudaHeadDim];
  __shared__ WarpParts<kWarps, static_cast<int>(kCudaHeadDim)> parts;
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

  OnlineSoftmax<kColumns> softmax;
  for (int k0 = item.first(a, 0) + 32 * warp; k0 < item.keys; k0 += kThreads) {
    const int key = k0 + lane;
    float score = -INFINITY;
    if (key < item.keys) {
      float product = 0;
      for (int c = 0; c < width; ++c)
        product = fmaf(to_float(k[key * a.k_stride + c]), query[c], product);
      score = item.score<T>(a, product, 0, key);
    }
    softmax.raise(warp_reduce<Max>(score));
    const float p = expf(score - softmax.maximum);
    softmax.sum += warp_reduce<Add>(p);
    const int keys = min(32, item.keys - k0);
#pragma unroll 4
    for (int j = 0; j < keys; ++j) {
      const float weight = __shfl_sync(0xffffffffu, p, j);
      const T* row = v + (k0 + j) * a.v_stride;
#pragma unroll
      for (int c = 0; c < kColumns; ++c)
        if (32 * c + lane < width)
          softmax.values[c] = fmaf(weight, to_float(row[32 * c + lane]), softmax.values[c]);
    }
  }
#pragma unroll
  for (int c = 0; c < kColumns; ++c)
    if (32 * c + lane < width) parts.values[warp][32 * c + lane] = softmax.values[c];
  if (lane == 0) {
    parts.maxima[warp] = softmax.maximum;
    parts.sums[warp] = softmax.sum;
  }
  __syncthreads();
  if (warp > 0) return;
  const int64_t at = item.query * a.heads + item.head;
  parts.write(out + at * width, lse ? lse + at : nullptr, width, lane);
}

template <class T>
bool rows_of_packs(const AttentionForwardParams& p) {
  constexpr int64_t kPack = 16 / static_cast<int64_t>(sizeof(T));
  const auto address = [](const void* at) { return reinterpret_cast<uintptr_t>(at); };
  return (p.head_dim | p.q_stride | p.k_stride | p.v_stride) % kPack == 0 &&
         (address(p.q) | address(p.k) | address(p.v)) % 16 == 0;
}

template <class T, class Kernel>
int32_t launch_decode(DeviceState& device, const AttentionForwardParams& p, Kernel kernel,
                      int64_t blocks, int threads) {
  return launch_attention(device, "attention_forward", kernel, blocks, threads, 0,
                          AttentionProblem::of(device, p), static_cast<const T*>(p.q),
                          static_cast<const T*>(p.k), static_cast<const T*>(p.v),
                          static_cast<T*>(p.out), static_cast<float*>(p.lse));
}

// Heads of a group in one block read their keys and values once. A head for each block is faster
// where there are few blocks.
template <class T, int kLanes>
int32_t launch_group(DeviceState& device, const AttentionForwardParams& p) {
  if (p.heads == p.kv_heads || p.sequences * p.heads <= 2 * device.multiprocessors)
    return launch_decode<T>(device, p, group_kernel<T, kLanes, 1>, GroupItem<1>::blocks(p),
                            kGroupThreads);
  return launch_decode<T>(device, p, group_kernel<T, kLanes, 4>, GroupItem<4>::blocks(p),
                          kGroupThreads);
}

template <class T>
int32_t launch(DeviceState& device, const AttentionForwardParams& p) {
  if (!rows_of_packs<T>(p))
    return launch_decode<T>(device, p, head_kernel<T>, p.sequences * p.heads, kThreads);
  if constexpr (std::is_same_v<T, bf16>) {
    const int64_t blocks = GroupItem<kMmaHeads>::blocks(p);
    if (p.head_dim <= 64) return launch_decode<T>(device, p, mma_kernel<64>, blocks, kGroupThreads);
    if (p.head_dim <= 128)
      return launch_decode<T>(device, p, mma_kernel<128>, blocks, kGroupThreads);
    return launch_group<T, 32>(device, p);
  } else {
    if (p.head_dim <= 32) return launch_group<T, 8>(device, p);
    if (p.head_dim <= 64) return launch_group<T, 16>(device, p);
    if (p.head_dim <= 128) return launch_group<T, 32>(device, p);
    return launch_decode<T>(device, p, head_kernel<T>, p.sequences * p.heads, kThreads);
  }
}

}  // namespace

int32_t attention_decode_forward(DeviceState& device, const AttentionForwardParams& p) {
  int32_t result = kSuccess;
  const bool known =
      with_device_type(p.dtype, [&](auto zero) { result = launch<decltype(zero)>(device, p); });
  return known ? result : unsupported(device, "attention: CUDA has float32 and bfloat16");
}

}  // namespace trafo::cuda
