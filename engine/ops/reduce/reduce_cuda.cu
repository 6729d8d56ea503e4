// Reductions in fixed order. How the work is cut depends on shapes alone, so a result has the same
// bits on every run, and on every card with the same arithmetic.
#include <algorithm>

#include "engine/backend/cuda/device/elementwise.cuh"
#include "engine/backend/cuda/device/reduce.cuh"
#include "engine/ops/reduce/reduce.h"

namespace trafo {
namespace {

using cuda::bf16;
using cuda::DeviceState;

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int64_t kShortRow = 1024;   // a warp reduces one
constexpr int64_t kRowChunk = 16384;  // elements of a long row that one block reduces
constexpr int64_t kColumnBlocks =
    1056;  // blocks a reduction over rows aims at: a few for each multiprocessor
constexpr int64_t kMinChunkRows = 32;      // rows of a block, at least
constexpr int kRowsInFlight = 4;           // of a thread
constexpr int64_t kManyOutputs = 1 << 16;  // enough of them for one thread each

struct SumOp : cuda::Add {};
struct MaxOp {  // NaN wins
  static constexpr float kIdentity = -__builtin_huge_valf();
  __device__ __forceinline__ float operator()(float a, float b) const {
    return b > a || b != b ? b : a;
  }
};

// Where a finished value goes, divided by the size for a mean and added to what is there if asked
// for.
struct Target {
  void* data;
  bool is_bf16;
  bool accumulate;
  float divisor;  // 1, or the size for a mean

  __device__ __forceinline__ void put(int64_t i, float value) const {
    value /= divisor;
    if (is_bf16) {
      bf16& at = static_cast<bf16*>(data)[i];
      at = __float2bfloat16_rn(accumulate ? __bfloat162float(at) + value : value);
    } else {
      float& at = static_cast<float*>(data)[i];
      at = accumulate ? at + value : value;
    }
  }
};

// The part of x[0 .. count) that thread `thread` of `threads` reduces. wide: x is 16-byte aligned.
template <class Op, class T>
__device__ __forceinline__ float reduce_part(const T* x, int64_t count, int thread, int threads,
                                             bool wide) {
  constexpr int kWidth = cuda::kPackWidth<T>;
  const Op op;
  float result = Op::kIdentity;
  int64_t scalar_from = 0;
  if (wide) {
    const int64_t packs = count / kWidth;
#pragma unroll 4
    for (int64_t i = thread; i < packs; i += threads) {
      float v[kWidth];
      cuda::load_floats(x + i * kWidth, v);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) result = op(result, v[j]);
    }
    scalar_from = packs * kWidth;
  }
#pragma unroll 4
  for (int64_t i = scalar_from + thread; i < count; i += threads)
    result = op(result, cuda::to_float(x[i]));
  return result;
}

// One warp a row.
template <class T, class Op>
__global__ void __launch_bounds__(kThreads)
    reduce_short_rows(const T* x, int64_t rows, int64_t size, bool wide, Target target) {
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (row >= rows) return;  // whole warps
  const int lane = threadIdx.x % 32;
  const float result = cuda::warp_reduce<Op>(reduce_part<Op>(x + row * size, size, lane, 32, wide));
  if (lane == 0) target.put(row, result);
}

// One block a chunk of a row; target element row * chunks + chunk.
template <class T, class Op>
__global__ void __launch_bounds__(kThreads)
    reduce_row_chunks(const T* x, int64_t size, int64_t chunks, bool wide, Target target) {
  __shared__ float shared[kWarps];
  const int64_t row = blockIdx.x / chunks, begin = blockIdx.x % chunks * kRowChunk;
  const int64_t count = size - begin < kRowChunk ? size - begin : kRowChunk;
  const float part = reduce_part<Op>(x + row * size + begin, count, threadIdx.x, kThreads, wide);
  const float result = cuda::block_reduce<Op, kThreads>(part, shared);
  if (threadIdx.x == 0) target.put(blockIdx.x, result);
}

// x [outer, size, inner] over `size`: one block takes `chunk_rows` rows of a band of 32 kWidth
// columns of one of `outer`, each warp every kWarps-th row; target [outer, chunks, inner].
struct ColumnShape {
  int64_t size, inner, chunk_rows, chunks, bands;
};

template <class T, class Op, int kWidth>
__global__ void __launch_bounds__(kThreads)
    reduce_columns(const T* x, ColumnShape s, Target target) {
  __shared__ float shared[kWarps][32 * kWidth + 1];
  int64_t item = blockIdx.x;
  const int64_t band = item % s.bands;
  item /= s.bands;
  const int64_t chunk = item % s.chunks, outer = item / s.chunks;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t column = (band * 32 + lane) * kWidth;
  const int64_t begin = chunk * s.chunk_rows;
  const int64_t end = begin + s.chunk_rows < s.size ? begin + s.chunk_rows : s.size;
  const Op op;
  float total[kWidth];
#pragma unroll
  for (int j = 0; j < kWidth; ++j) total[j] = Op::kIdentity;
  if (column < s.inner) {  // kWidth divides inner
    const T* at = x + (outer * s.size + begin + warp) * s.inner + column;
    const int64_t step = kWarps * s.inner;
    for (int64_t row = begin + warp; row < end; row += kRowsInFlight * kWarps) {
      // Predicated: a loop over the last few rows would wait for each.
      cuda::Held<T, kWidth> packs[kRowsInFlight];
#pragma unroll
      for (int u = 0; u < kRowsInFlight; ++u, at += step)
        if (row + u * kWarps < end) packs[u] = cuda::load_held<T, kWidth>(at);
#pragma unroll
      for (int u = 0; u < kRowsInFlight; ++u) {
        if (row + u * kWarps >= end) continue;
        float v[kWidth];
        cuda::to_floats<T>(packs[u], v);
#pragma unroll
        for (int j = 0; j < kWidth; ++j) total[j] = op(total[j], v[j]);
      }
    }
  }
#pragma unroll
  for (int j = 0; j < kWidth; ++j) shared[warp][j * 32 + lane] = total[j];
  __syncthreads();
  for (int i = threadIdx.x; i < 32 * kWidth; i += kThreads) {
    float sum = shared[0][i];
#pragma unroll
    for (int w = 1; w < kWarps; ++w) sum = op(sum, shared[w][i]);
    const int64_t to = (band * 32 + i % 32) * kWidth + i / 32;
    if (to < s.inner) target.put((outer * s.chunks + chunk) * s.inner + to, sum);
  }
}

// Adds the results of reduce_columns for a column, partials [outer, chunks, inner] for target
// [outer, inner].
template <class Op>
__global__ void __launch_bounds__(cuda::kPartThreads)
    reduce_chunks(const float* __restrict__ partials, int64_t chunks, int64_t inner, int64_t bands,
                  Target target) {
  const int64_t outer = blockIdx.x / bands;
  const int64_t column = blockIdx.x % bands * cuda::kPartColumns + threadIdx.x % cuda::kPartColumns;
  const bool there = column < inner;
  const float result =
      cuda::reduce_parts<Op>(partials + outer * chunks * inner + column, there, chunks, inner);
  if (there && threadIdx.x < cuda::kPartColumns) target.put(outer * inner + column, result);
}

// Small or many reductions over rows: one thread an output.
template <class T, class Op>
__global__ void __launch_bounds__(kThreads)
    reduce_by_output(const T* x, int64_t outputs, int64_t size, int64_t inner, Target target) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= outputs) return;
  const T* at = x + i / inner * size * inner + i % inner;
  const Op op;
  float result = Op::kIdentity;
#pragma unroll 4
  for (int64_t row = 0; row < size; ++row) result = op(result, cuda::to_float(at[row * inner]));
  target.put(i, result);
}

unsigned blocks_for(int64_t items, int64_t per_block) {
  return static_cast<unsigned>((items - 1) / per_block + 1);
}

template <class T, class Op>
int32_t reduce_rows(DeviceState& device, const T* x, int64_t rows, int64_t size,
                    const Target& target) {
  const bool wide = cuda::aligned16(x) && size % cuda::kPackWidth<T> == 0;
  if (size <= kShortRow) {
    reduce_short_rows<T, Op>
        <<<blocks_for(rows, kWarps), kThreads, 0, device.stream>>>(x, rows, size, wide, target);
    return cuda::launched(device, "reduce_short_rows");
  }
  const int64_t chunks = (size - 1) / kRowChunk + 1;
  Target first = target;
  if (chunks > 1) {
    first = {device.scratch(static_cast<size_t>(rows * chunks) * sizeof(float)), false, false,
             1.0f};
    if (!first.data) return cuda::kOutOfMemory;
  }
  reduce_row_chunks<T, Op><<<static_cast<unsigned>(rows * chunks), kThreads, 0, device.stream>>>(
      x, size, chunks, wide, first);
  if (chunks > 1) {
    // 16384^2 elements take one block here; a longer row only more time.
    const float* partial = static_cast<const float*>(first.data);
    reduce_short_rows<float, Op><<<blocks_for(rows, kWarps), kThreads, 0, device.stream>>>(
        partial, rows, chunks, chunks % 4 == 0, target);
  }
  return cuda::launched(device, "reduce_row_chunks");
}

template <class T, class Op>
int32_t reduce_over_rows(DeviceState& device, const T* x, int64_t outer, int64_t size,
                         int64_t inner, const Target& target) {
  const int64_t outputs = outer * inner;
  if (size <= 16 || (outputs >= kManyOutputs && inner >= 32)) {
    reduce_by_output<T, Op><<<blocks_for(outputs, kThreads), kThreads, 0, device.stream>>>(
        x, outputs, size, inner, target);
    return cuda::launched(device, "reduce_by_output");
  }
  constexpr int kWide = cuda::kPackWidth<T>;
  const bool wide = inner % kWide == 0 && cuda::aligned16(x);
  const auto grid = [&](const ColumnShape& s) {
    return static_cast<unsigned>(outer * s.chunks * s.bands);
  };

  ColumnShape s{size, inner, 0, 0, (inner - 1) / (32 * (wide ? kWide : 1)) + 1};
  const int64_t wanted = std::max<int64_t>(1, kColumnBlocks / (outer * s.bands));
  s.chunk_rows = std::max(kMinChunkRows, (size - 1) / wanted + 1);
  s.chunk_rows = (s.chunk_rows + kWarps - 1) / kWarps * kWarps;
  s.chunks = (size - 1) / s.chunk_rows + 1;
  Target first = target;
  if (s.chunks > 1) {
    first = {device.scratch(static_cast<size_t>(outputs * s.chunks) * sizeof(float)), false, false,
             1.0f};
    if (!first.data) return cuda::kOutOfMemory;
  }
  if (wide)
    reduce_columns<T, Op, kWide><<<grid(s), kThreads, 0, device.stream>>>(x, s, first);
  else
    reduce_columns<T, Op, 1><<<grid(s), kThreads, 0, device.stream>>>(x, s, first);
  if (s.chunks > 1) {
    const int64_t bands = (inner - 1) / cuda::kPartColumns + 1;
    reduce_chunks<Op>
        <<<static_cast<unsigned>(outer * bands), cuda::kPartThreads, 0, device.stream>>>(
            static_cast<const float*>(first.data), s.chunks, inner, bands, target);
  }
  return cuda::launched(device, "reduce_columns");
}

template <class T, class Op>
int32_t reduce(DeviceState& device, const ReduceForwardParams& p, const Target& target) {
  const T* x = static_cast<const T*>(p.x);
  return p.inner == 1 ? reduce_rows<T, Op>(device, x, p.outer, p.size, target)
                      : reduce_over_rows<T, Op>(device, x, p.outer, p.size, p.inner, target);
}

// dx[o, s, j] (+)= dy[o, j] factor, kWidth neighbours a thread; `same`: they have one dy.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    spread(const T* dy, T* dx, int64_t count, int64_t size, int64_t inner, float factor, bool same,
           bool accumulate) {
  const int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kWidth;
  if (i >= count) return;
  int64_t from;
  if (count < (int64_t{1} << 31)) {  // divisions of 64 bits are slow
    const auto at = static_cast<uint32_t>(i), width = static_cast<uint32_t>(inner);
    from = int64_t{at / (static_cast<uint32_t>(size) * width)} * inner + at % width;
  } else {
    from = i / (size * inner) * inner + i % inner;
  }
  float v[kWidth];
  if (same) {
    const float value = cuda::to_float(dy[from]);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) v[j] = value;
  } else {
    cuda::load_floats(dy + from, v);
  }
  float old[kWidth];
  if (accumulate) cuda::load_floats(dx + i, old);
#pragma unroll
  for (int j = 0; j < kWidth; ++j) v[j] = accumulate ? old[j] + v[j] * factor : v[j] * factor;
  cuda::store_floats(dx + i, v);
}

__device__ __forceinline__ bool same_value(float a, float b) {
  return a == b || (a != a && b != b);
}

// Adds dy to dx at the first occurrence of the maximum y. One warp a row.
template <class T>
__global__ void __launch_bounds__(kThreads)
    max_backward_rows(const T* x, const T* y, const T* dy, T* dx, int64_t rows, int64_t size) {
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (row >= rows) return;  // whole warps
  const int lane = threadIdx.x % 32;
  const float largest = cuda::to_float(y[row]);
  for (int64_t begin = 0; begin < size; begin += 32) {
    const int64_t i = row * size + begin + lane;
    const bool here = begin + lane < size && same_value(cuda::to_float(x[i]), largest);
    const unsigned found = __ballot_sync(0xffffffffu, here);
    if (found == 0) continue;
    if (lane == __ffs(static_cast<int>(found)) - 1)
      dx[i] = cuda::from_float<T>(cuda::to_float(dx[i]) + cuda::to_float(dy[row]));
    break;
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    max_backward_columns(const T* x, const T* y, const T* dy, T* dx, int64_t outputs, int64_t size,
                         int64_t inner) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= outputs) return;
  const int64_t start = i / inner * size * inner + i % inner;
  const float largest = cuda::to_float(y[i]);
  for (int64_t row = 0; row < size; ++row) {
    const int64_t at = start + row * inner;
    if (!same_value(cuda::to_float(x[at]), largest)) continue;
    dx[at] = cuda::from_float<T>(cuda::to_float(dx[at]) + cuda::to_float(dy[i]));
    break;
  }
}

template <class T>
int32_t max_backward(DeviceState& device, const ReduceBackwardParams& p) {
  const T *x = static_cast<const T*>(p.x), *y = static_cast<const T*>(p.y),
          *dy = static_cast<const T*>(p.dy);
  T* dx = static_cast<T*>(p.dx);
  if (!p.accumulate) {
    const cudaError_t error = cudaMemsetAsync(
        dx, 0, static_cast<size_t>(p.outer * p.size * p.inner) * sizeof(T), device.stream);
    if (error != cudaSuccess) return cuda::report(device, error, "reduce_backward");
  }
  if (p.inner == 1)
    max_backward_rows<<<blocks_for(p.outer, kWarps), kThreads, 0, device.stream>>>(x, y, dy, dx,
                                                                                   p.outer, p.size);
  else
    max_backward_columns<<<blocks_for(p.outer * p.inner, kThreads), kThreads, 0, device.stream>>>(
        x, y, dy, dx, p.outer * p.inner, p.size, p.inner);
  return cuda::launched(device, "reduce_backward");
}

template <class T>
int32_t spread_backward(DeviceState& device, const ReduceBackwardParams& p) {
  const T* dy = static_cast<const T*>(p.dy);
  T* dx = static_cast<T*>(p.dx);
  const int64_t count = p.outer * p.size * p.inner;
  const float factor =
      p.kind == ReduceKind::mean ? static_cast<float>(1.0 / static_cast<double>(p.size)) : 1.0f;
  constexpr int kWide = cuda::kPackWidth<T>;
  const bool same = p.inner == 1;
  const bool wide = (same ? p.size : p.inner) % kWide == 0 && cuda::aligned16(dx) &&
                    (same || cuda::aligned16(dy));
  if (wide)
    spread<T, kWide><<<blocks_for(count, kThreads * kWide), kThreads, 0, device.stream>>>(
        dy, dx, count, p.size, p.inner, factor, same, p.accumulate);
  else
    spread<T, 1><<<blocks_for(count, kThreads), kThreads, 0, device.stream>>>(
        dy, dx, count, p.size, p.inner, factor, same, p.accumulate);
  return cuda::launched(device, "reduce_backward");
}

int32_t zero(DeviceState& device, void* data, size_t bytes) {
  const cudaError_t error = cudaMemsetAsync(data, 0, bytes, device.stream);
  return error == cudaSuccess ? cuda::kSuccess : cuda::report(device, error, "filling with zeros");
}

}  // namespace

int32_t reduce_forward_cuda(DeviceState& device, const ReduceForwardParams& p) {
  int32_t result = cuda::kSuccess;
  const bool known = cuda::with_device_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    if (p.outer == 0 || p.inner == 0) return;
    if (p.size == 0) {
      result = zero(device, p.y, static_cast<size_t>(p.outer * p.inner) * sizeof(T));
      return;
    }
    const Target target{p.y, p.dtype == DType::bf16, false,
                        p.kind == ReduceKind::mean ? static_cast<float>(p.size) : 1.0f};
    result = p.kind == ReduceKind::max ? reduce<T, MaxOp>(device, p, target)
                                       : reduce<T, SumOp>(device, p, target);
  });
  return known ? result : cuda::unsupported(device, "reductions on CUDA take float32 or bfloat16");
}

int32_t reduce_backward_cuda(DeviceState& device, const ReduceBackwardParams& p) {
  int32_t result = cuda::kSuccess;
  const bool known = cuda::with_device_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    if (p.outer == 0 || p.size == 0 || p.inner == 0) return;
    result = p.kind == ReduceKind::max ? max_backward<T>(device, p) : spread_backward<T>(device, p);
  });
  return known ? result : cuda::unsupported(device, "reductions on CUDA take float32 or bfloat16");
}

int32_t column_sum_cuda(DeviceState& device, const ColumnSumParams& p) {
  int32_t result = cuda::kSuccess;
  const bool known = cuda::with_device_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    if (p.width == 0) return;
    if (p.rows == 0) {
      if (!p.accumulate) result = zero(device, p.out, static_cast<size_t>(p.width) * sizeof(float));
      return;
    }
    result = reduce_over_rows<T, SumOp>(device, static_cast<const T*>(p.x), 1, p.rows, p.width,
                                        Target{p.out, false, p.accumulate, 1.0f});
  });
  return known ? result : cuda::unsupported(device, "column sums on CUDA take float32 or bfloat16");
}

}  // namespace trafo
