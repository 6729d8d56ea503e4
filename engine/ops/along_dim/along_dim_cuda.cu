#include <algorithm>
#include <climits>
#include <cmath>
#include <type_traits>

#include "engine/backend/cuda/device/elementwise.cuh"
#include "engine/backend/cuda/device/strided.cuh"
#include "engine/ops/along_dim/along_dim.h"

namespace trafo {
namespace {

using cuda::DeviceState;

constexpr int kThreads = 256;

unsigned blocks_for(int64_t threads) {
  return static_cast<unsigned>((threads - 1) / kThreads + 1);
}

// The value that says that an index was out of range: NaN, -1 in int32.
template <class T>
__device__ T poison() {
  if constexpr (std::is_same_v<T, int32_t>)
    return -1;
  else
    return cuda::from_float<T>(nanf(""));
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    gather(cuda::StridedLayout<1> layout, int64_t x_step, int64_t x_size, const T* x,
           const int32_t* index, T* out) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= layout.count) return;
  int64_t at[1];
  cuda::locate(layout, static_cast<uint64_t>(i), at);
  const int64_t place = index[i];
  out[i] = place >= 0 && place < x_size ? x[at[0] + place * x_step] : poison<T>();
}

// A thread owns the places of one column whose number is `slice` modulo `slices`, and walks over
// the whole index of the column: the order of additions is fixed.
struct Columns {
  cuda::StridedLayout<2> layout;  // of out and index
  int64_t out_step, out_size, index_step, index_size, slices;
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    place(Columns c, const T* dout, const int32_t* index, void* out) {
  const int64_t thread = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t column = thread / c.slices, slice = thread % c.slices;
  if (column >= c.layout.count) return;
  int64_t at[2];
  cuda::locate(c.layout, static_cast<uint64_t>(column), at);
  for (int64_t i = 0; i < c.index_size; ++i) {
    const int64_t number = at[1] + i * c.index_step, given = index[number];
    const bool inside = given >= 0 && given < c.out_size;
    const int64_t place = inside ? given : 0;
    if (place % c.slices != slice) continue;
    const int64_t to = at[0] + place * c.out_step;
    if (dout)
      static_cast<float*>(out)[to] += inside ? cuda::to_float(dout[number]) : nanf("");
    else
      static_cast<int32_t*>(out)[to] = inside ? static_cast<int32_t>(number + 1) : INT_MAX;
  }
}

template <class T>
using SumOf = std::conditional_t<std::is_same_v<T, int32_t>, uint32_t, float>;

template <class T>
__device__ SumOf<T> to_sum(T x) {
  if constexpr (std::is_same_v<T, int32_t>)
    return static_cast<uint32_t>(x);
  else
    return cuda::to_float(x);
}
template <class T>
__device__ T from_sum(SumOf<T> x) {
  if constexpr (std::is_same_v<T, int32_t>)
    return static_cast<int32_t>(x);
  else
    return cuda::from_float<T>(x);
}

// One block a column: kThreads elements at a time, and what came before them.
template <class T>
__global__ void __launch_bounds__(kThreads)
    cumulative_sum(int64_t size, int64_t inner, bool reverse, const T* x, T* y) {
  __shared__ SumOf<T> sums[2][kThreads];
  const int64_t column = blockIdx.x;
  const int64_t first = column / inner * size * inner + column % inner;
  const int t = static_cast<int>(threadIdx.x);
  SumOf<T> carry = 0;
  for (int64_t begin = 0; begin < size; begin += kThreads) {
    const int64_t i = begin + t, at = first + (reverse ? size - 1 - i : i) * inner;
    SumOf<T> sum = i < size ? to_sum(x[at]) : SumOf<T>{0};
    int from = 0;
    sums[from][t] = sum;
    __syncthreads();
    for (int step = 1; step < kThreads; step *= 2) {
      if (t >= step) sum += sums[from][t - step];
      from ^= 1;
      sums[from][t] = sum;
      __syncthreads();
    }
    if (i < size) y[at] = from_sum<T>(carry + sum);
    carry += sums[from][kThreads - 1];
    __syncthreads();
  }
}

// An element of a column: its value, as a number that compares as the element does, and its place.
template <class V>
struct Candidate {
  V value;
  int64_t at;  // -1: none
};

// True if a comes before b.
template <class V>
__device__ bool before(const Candidate<V>& a, const Candidate<V>& b, bool smallest) {
  if (a.at < 0 || b.at < 0) return a.at >= 0;
  if constexpr (std::is_same_v<V, float>) {
    const bool nan_a = isnan(a.value), nan_b = isnan(b.value);
    if (nan_a != nan_b) return nan_a;
    if (nan_a) return a.at < b.at;
  }
  if (a.value != b.value) return smallest ? a.value < b.value : a.value > b.value;
  return a.at < b.at;
}

// One block a column, one pass for each of the k elements: the best after the one found last.
template <class T>
__global__ void __launch_bounds__(kThreads)
    largest(int64_t size, int64_t inner, int64_t k, bool smallest, const T* x, int32_t* ids) {
  using V = std::conditional_t<std::is_same_v<T, int32_t>, int32_t, float>;
  __shared__ Candidate<V> best[kThreads];
  const int64_t outer = blockIdx.x / inner, offset = blockIdx.x % inner;
  const T* from = x + outer * size * inner + offset;
  int32_t* to = ids + outer * k * inner + offset;
  const int t = static_cast<int>(threadIdx.x);
  Candidate<V> found{0, -1};
  for (int64_t round = 0; round < k; ++round) {
    Candidate<V> mine{0, -1};
    for (int64_t i = t; i < size; i += kThreads) {
      Candidate<V> candidate{0, i};
      if constexpr (std::is_same_v<T, int32_t>)
        candidate.value = from[i * inner];
      else
        candidate.value = cuda::to_float(from[i * inner]);
      const bool is_left = round == 0 || before(found, candidate, smallest);
      if (is_left && before(candidate, mine, smallest)) mine = candidate;
    }
    best[t] = mine;
    __syncthreads();
    for (int step = kThreads / 2; step > 0; step /= 2) {
      if (t < step && before(best[t + step], best[t], smallest)) best[t] = best[t + step];
      __syncthreads();
    }
    found = best[0];
    if (t == 0) to[round * inner] = static_cast<int32_t>(found.at);
    __syncthreads();
  }
}

// fn(zero of the element type); false for a dtype that kernels do not have.
template <class Fn>
bool with_type(DType dtype, Fn&& fn) {
  if (dtype != DType::i32) return cuda::with_device_type(dtype, fn);
  fn(int32_t{});
  return true;
}

constexpr const char* kTypes = "this op on CUDA takes float32, bfloat16 or int32";
constexpr int64_t kMostBlocks = INT_MAX;

}  // namespace

int32_t gather_forward_cuda(DeviceState& device, const GatherForwardParams& p) {
  const auto layout = cuda::strided_layout<1>(p.rank, p.shape, {p.x_strides});
  if (layout.count == 0) return cuda::kSuccess;
  const bool known = with_type(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    gather<T><<<blocks_for(layout.count), kThreads, 0, device.stream>>>(
        layout, p.x_step, p.x_size, static_cast<const T*>(p.x), p.index, static_cast<T*>(p.out));
  });
  return known ? cuda::launched(device, "gather_forward") : cuda::unsupported(device, kTypes);
}

int32_t gather_backward_cuda(DeviceState& device, const GatherBackwardParams& p) {
  Columns c{cuda::strided_layout<2>(p.rank, p.shape, {p.out_strides, p.index_strides}),
            p.out_step,
            p.out_size,
            p.index_step,
            p.index_size,
            1};
  if (c.layout.count == 0 || p.index_size == 0 || p.out_size == 0) return cuda::kSuccess;
  // Enough threads for the device where columns are few and long.
  constexpr int64_t kEnough = 1 << 16;
  if (p.index_size > 64)
    c.slices = std::clamp<int64_t>(kEnough / c.layout.count, 1, std::min(p.out_size, p.index_size));
  const bool known = cuda::with_device_type(p.dout ? p.dtype : DType::f32, [&](auto zero) {
    using T = decltype(zero);
    place<T><<<blocks_for(c.layout.count * c.slices), kThreads, 0, device.stream>>>(
        c, static_cast<const T*>(p.dout), p.index, p.out);
  });
  return known ? cuda::launched(device, "gather_backward")
               : cuda::unsupported(device, "gradients on CUDA are float32 or bfloat16");
}

int32_t cumulative_sum_forward_cuda(DeviceState& device, const CumulativeSumForwardParams& p) {
  const int64_t columns = p.outer * p.inner;
  if (columns == 0 || p.size == 0) return cuda::kSuccess;
  if (columns > kMostBlocks) return cuda::unsupported(device, "cumsum takes at most 2^31 columns");
  const bool known = with_type(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    cumulative_sum<T><<<static_cast<unsigned>(columns), kThreads, 0, device.stream>>>(
        p.size, p.inner, p.reverse, static_cast<const T*>(p.x), static_cast<T*>(p.y));
  });
  return known ? cuda::launched(device, "cumulative_sum_forward")
               : cuda::unsupported(device, kTypes);
}

int32_t cumulative_sum_backward_cuda(DeviceState& device, const CumulativeSumBackwardParams& p) {
  return cumulative_sum_forward_cuda(device, {p.dtype, true, p.outer, p.size, p.inner, p.dy, p.dx});
}

int32_t largest_cuda(DeviceState& device, const LargestParams& p) {
  const int64_t columns = p.outer * p.inner;
  if (columns == 0) return cuda::kSuccess;
  if (columns > kMostBlocks) return cuda::unsupported(device, "at most 2^31 columns are searched");
  const bool known = with_type(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    largest<T><<<static_cast<unsigned>(columns), kThreads, 0, device.stream>>>(
        p.size, p.inner, p.k, p.smallest, static_cast<const T*>(p.x), p.ids);
  });
  return known ? cuda::launched(device, "largest") : cuda::unsupported(device, kTypes);
}

}  // namespace trafo
