#include "engine/ops/embedding/embedding.h"

#include <algorithm>
#include <bit>
#include <cub/device/device_radix_sort.cuh>

#include "engine/backend/cuda/device/numeric.cuh"
#include "engine/backend/cuda/device/philox.cuh"
#include "engine/backend/cuda/device_state.h"

namespace trafo {
namespace cuda {
namespace {

// Columns a thread handles at once: a Philox block of dropout factors.
constexpr int kGroup = 8;

constexpr int kForwardThreads = 256;

// W = kGroup: the width is a multiple of it and everything is aligned to 16 bytes. W = 1: anything.
template <class T, int W>
__device__ __forceinline__ void load_floats(const T* p, float (&x)[W]) {
  if constexpr (W == 1) {
    x[0] = to_float(*p);
  } else {
    constexpr int V = kPackWidth<T>;
#pragma unroll
    for (int i = 0; i < W; i += V) {
      const Pack<T, V> pack = load_pack<T, V>(p + i);
#pragma unroll
      for (int j = 0; j < V; ++j) x[i + j] = to_float(pack.v[j]);
    }
  }
}

template <class T, int W>
__device__ __forceinline__ void store_floats(T* p, const float (&x)[W]) {
  if constexpr (W == 1) {
    *p = from_float<T>(x[0]);
  } else {
    constexpr int V = kPackWidth<T>;
#pragma unroll
    for (int i = 0; i < W; i += V) {
      Pack<T, V> pack;
#pragma unroll
      for (int j = 0; j < V; ++j) pack.v[j] = from_float<T>(x[i + j]);
      store_pack(p + i, pack);
    }
  }
}

// x *= mask of the elements from `first` on.
template <int W>
__device__ __forceinline__ void apply_dropout(const DropoutArgs& dropout, uint64_t first,
                                              float (&x)[W]) {
  if (dropout.threshold == 0) return;
  if constexpr (W == 1) {
    x[0] *= dropout_factor_at(dropout, first);
  } else {
    const uint4 block = philox_block(dropout, first / kGroup);
#pragma unroll
    for (int j = 0; j < W; ++j) x[j] *= dropout_factor(dropout, block, j);
  }
}

// A warp for each token.
template <class T, int W>
__global__ void __launch_bounds__(kForwardThreads)
    forward_kernel(DropoutArgs dropout, float scale, int64_t tokens, int64_t width,
                   const int32_t* __restrict__ ids, const int32_t* __restrict__ positions,
                   const T* __restrict__ table, const T* __restrict__ position_table,
                   T* __restrict__ y) {
  const int64_t t = static_cast<int64_t>(blockIdx.x) * (kForwardThreads / 32) + threadIdx.x / 32;
  if (t >= tokens) return;
  const T* row = table + ids[t] * width;
  const T* position_row = position_table ? position_table + positions[t] * width : nullptr;
#pragma unroll 2
  for (int64_t c = threadIdx.x % 32 * W; c < width; c += 32 * W) {
    float x[W], added[W];
    load_floats<T, W>(row + c, x);
#pragma unroll
    for (int j = 0; j < W; ++j) added[j] = 0;
    if (position_row) load_floats<T, W>(position_row + c, added);
#pragma unroll
    for (int j = 0; j < W; ++j) x[j] = fmaf(x[j], scale, added[j]);
    apply_dropout<W>(dropout, static_cast<uint64_t>(t * width + c), x);
    store_floats<T, W>(y + t * width + c, x);
  }
}

// Backward: (row of the table, token) pairs sorted by row, ties in token order; then sums over runs
// of equal rows. A block sums kChunk pairs. Runs inside a chunk are complete; what belongs to a run
// that crosses its borders goes to `partial` [chunks][2][width], first the end of a run that began
// before, then the beginning of one that goes on, and a second kernel adds those in order. Every
// row of the table has one writer.
constexpr int kChunk = 16;
constexpr int kBackwardThreads = 128;

struct ScatterArgs {
  DropoutArgs dropout;
  float scale;
  bool accumulate;
  int64_t tokens, width;
  uint32_t slices;  // blocks side by side for one chunk
};

template <int W>
__device__ __forceinline__ void write_row(const ScatterArgs& a, float* to, float (&sum)[W]) {
  float old[W];
#pragma unroll
  for (int j = 0; j < W; ++j) old[j] = 0;
  if (a.accumulate) load_floats<float, W>(to, old);
#pragma unroll
  for (int j = 0; j < W; ++j) sum[j] = fmaf(sum[j], a.scale, old[j]);
  store_floats<float, W>(to, sum);
}

template <class T, int W>
__global__ void __launch_bounds__(kBackwardThreads)
    sum_chunks_kernel(ScatterArgs a, const int32_t* __restrict__ rows,
                      const int32_t* __restrict__ order, const T* __restrict__ dy,
                      float* __restrict__ partial, float* __restrict__ grad) {
  constexpr int kAhead = 4;  // rows of dy in flight
  const int64_t chunk = blockIdx.x / a.slices;
  const int64_t c = static_cast<int64_t>(blockIdx.x % a.slices * blockDim.x + threadIdx.x) * W;
  if (c >= a.width) return;
  const int64_t begin = chunk * kChunk, end = min(begin + kChunk, a.tokens);
  const bool from_before = begin > 0 && rows[begin - 1] == rows[begin];
  const bool goes_on = end < a.tokens && rows[end] == rows[end - 1];
  float sum[W];
#pragma unroll
  for (int j = 0; j < W; ++j) sum[j] = 0;
  bool first_run = true;
  for (int64_t i = begin; i < end; i += kAhead) {
    float x[kAhead][W];
#pragma unroll
    for (int u = 0; u < kAhead; ++u)
      if (i + u < end) {
        const int64_t t = order[i + u];
        load_floats<T, W>(dy + t * a.width + c, x[u]);
        apply_dropout<W>(a.dropout, static_cast<uint64_t>(t * a.width + c), x[u]);
      }
#pragma unroll
    for (int u = 0; u < kAhead; ++u)
      if (i + u < end) {
#pragma unroll
        for (int j = 0; j < W; ++j) sum[j] += x[u][j];
        const int32_t row = rows[i + u];
        const bool last = i + u + 1 == end;
        if (last || rows[i + u + 1] != row) {  // the run ends, or the chunk
          if (first_run && from_before)
            store_floats<float, W>(partial + 2 * chunk * a.width + c, sum);
          else if (last && goes_on)
            store_floats<float, W>(partial + (2 * chunk + 1) * a.width + c, sum);
          else
            write_row<W>(a, grad + row * a.width + c, sum);
          first_run = false;
#pragma unroll
          for (int j = 0; j < W; ++j) sum[j] = 0;
        }
      }
  }
}

template <int W>
__global__ void __launch_bounds__(kBackwardThreads)
    join_chunks_kernel(ScatterArgs a, const int32_t* __restrict__ rows,
                       const float* __restrict__ partial, float* __restrict__ grad) {
  int64_t chunk = blockIdx.x / a.slices;
  const int64_t c = static_cast<int64_t>(blockIdx.x % a.slices * blockDim.x + threadIdx.x) * W;
  if (c >= a.width) return;
  // Only where a run begins in this chunk and goes on.
  int64_t end = (chunk + 1) * kChunk;
  if (end >= a.tokens || rows[end] != rows[end - 1]) return;
  const int32_t row = rows[end];
  if (chunk > 0 && rows[chunk * kChunk] == row && rows[chunk * kChunk - 1] == row) return;
  float sum[W];
  load_floats<float, W>(partial + (2 * chunk + 1) * a.width + c, sum);
  while (end < a.tokens && rows[end] == row) {
    ++chunk;
    end += kChunk;
    float x[W];
    load_floats<float, W>(partial + 2 * chunk * a.width + c, x);
#pragma unroll
    for (int j = 0; j < W; ++j) sum[j] += x[j];
    if (end < a.tokens && rows[end - 1] != row) break;
  }
  write_row<W>(a, grad + row * a.width + c, sum);
}

__global__ void number_tokens_kernel(int32_t* order, int64_t tokens) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < tokens) order[i] = static_cast<int32_t>(i);
}

int64_t round_up(int64_t n, int64_t step) {
  return (n + step - 1) / step * step;
}

template <class T>
int32_t scatter(DeviceState& device, const EmbeddingBackwardParams& p) {
  auto* grad = static_cast<float*>(p.dtable);
  if (!p.accumulate) {
    const cudaError_t error = cudaMemsetAsync(
        grad, 0, static_cast<size_t>(p.entries * p.width) * sizeof(float), device.stream);
    if (error != cudaSuccess) return report(device, error, "embedding_backward");
  }
  if (p.tokens == 0 || p.width == 0) return kSuccess;
  const int64_t chunks = (p.tokens + kChunk - 1) / kChunk;
  auto* partial = static_cast<float*>(
      device.scratch(static_cast<size_t>(2 * chunks * p.width) * sizeof(float)));
  if (!partial) return kOutOfMemory;
  const T* dy = static_cast<const T*>(p.dy);
  ScatterArgs args{DropoutArgs::of(device, p.dropout),
                   static_cast<float>(p.scale),
                   p.accumulate,
                   p.tokens,
                   p.width,
                   1};
  const auto run = [&](auto sum_chunks, auto join_chunks, int64_t columns) {
    const int64_t groups = p.width / columns;
    const int64_t threads = std::min<int64_t>(kBackwardThreads, round_up(groups, 32));
    args.slices = static_cast<uint32_t>((groups + threads - 1) / threads);
    const auto grid = static_cast<unsigned>(chunks * args.slices);
    sum_chunks<<<grid, static_cast<unsigned>(threads), 0, device.stream>>>(args, p.entry, p.token,
                                                                           dy, partial, grad);
    join_chunks<<<grid, static_cast<unsigned>(threads), 0, device.stream>>>(args, p.entry, partial,
                                                                            grad);
  };
  if (p.width % kGroup == 0 && aligned16(dy) && aligned16(grad))
    run(sum_chunks_kernel<T, kGroup>, join_chunks_kernel<kGroup>, kGroup);
  else
    run(sum_chunks_kernel<T, 1>, join_chunks_kernel<1>, 1);
  return launched(device, "embedding_backward");
}

}  // namespace
}  // namespace cuda

int32_t embedding_forward_cuda(cuda::DeviceState& device, const EmbeddingForwardParams& p) {
  using namespace cuda;
  if (p.tokens == 0 || p.width == 0) return kSuccess;
  const bool known = with_device_type(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    constexpr int kWarps = kForwardThreads / 32;
    const auto run = [&](auto kernel) {
      kernel<<<static_cast<unsigned>((p.tokens + kWarps - 1) / kWarps), kForwardThreads, 0,
               device.stream>>>(DropoutArgs::of(device, p.dropout), static_cast<float>(p.scale),
                                p.tokens, p.width, p.ids, p.positions,
                                static_cast<const T*>(p.table),
                                static_cast<const T*>(p.position_table), static_cast<T*>(p.y));
    };
    if (p.width % kGroup == 0 && aligned16(p.table) && aligned16(p.position_table) &&
        aligned16(p.y))
      run(forward_kernel<T, kGroup>);
    else
      run(forward_kernel<T, 1>);
  });
  if (!known) return unsupported(device, "embedding: CUDA has float32 and bfloat16");
  return launched(device, "embedding_forward");
}

int32_t embedding_backward_cuda(cuda::DeviceState& device, const EmbeddingBackwardParams& p) {
  using namespace cuda;
  int32_t result = kSuccess;
  const bool known =
      with_device_type(p.dtype, [&](auto zero) { result = scatter<decltype(zero)>(device, p); });
  if (!known) return unsupported(device, "embedding: CUDA has float32 and bfloat16");
  return result;
}

int32_t sort_tokens_cuda(cuda::DeviceState& device, const SortTokensParams& p) {
  using namespace cuda;
  constexpr const char* kName = "sort_tokens";
  if (p.tokens == 0) return kSuccess;
  const int bits =
      std::max(1, static_cast<int>(std::bit_width(static_cast<uint64_t>(p.entries - 1))));
  const int count = static_cast<int>(p.tokens);
  const int32_t* none = nullptr;
  size_t sort_bytes = 0;
  cudaError_t error = cub::DeviceRadixSort::SortPairs(nullptr, sort_bytes, p.indices, p.entry, none,
                                                      p.token, count, 0, bits, device.stream);
  if (error != cudaSuccess) return report(device, error, kName);
  const int64_t list = round_up(p.tokens * 4, 256);
  auto* scratch = static_cast<std::byte*>(device.scratch(static_cast<size_t>(list) + sort_bytes));
  if (!scratch) return kOutOfMemory;
  auto* numbers = reinterpret_cast<int32_t*>(scratch);
  number_tokens_kernel<<<static_cast<unsigned>((p.tokens + 255) / 256), 256, 0, device.stream>>>(
      numbers, p.tokens);
  error = cub::DeviceRadixSort::SortPairs(scratch + list, sort_bytes, p.indices, p.entry, numbers,
                                          p.token, count, 0, bits, device.stream);
  if (error != cudaSuccess) return report(device, error, kName);
  return launched(device, kName);
}

}  // namespace trafo
