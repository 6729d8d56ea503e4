// Layer norm forward on the device, alone or fused (bias_dropout_residual): sum = residual +
// dropout(x + bias), y = norm(sum). The row lives in registers; longer rows and odd widths are read
// again from the cache.
#pragma once

#include "engine/backend/cuda/device/dropout.cuh"
#include "engine/backend/cuda/device/rows.cuh"

namespace trafo::cuda {

template <class T>
struct NormForwardArgs {
  const T* x;
  const T* bias;      // fused only, or null
  const T* residual;  // fused only
  const T* gamma;
  const T* beta;
  T* sum;  // fused only
  T* y;
  float* mean;  // null where no backward follows, with rstd
  float* rstd;
  float* saved_mean;  // [rows, 2], or null
  int64_t rows, width;
  float epsilon;
  bool dropping;
  bool streamed;  // not fused only: x and y are tensors of kStreamedBytes or more
  DropoutArgs dropout;
  uint32_t* largest;  // place for the largest magnitude of y, or null
};

// Stores V elements of y.
template <class T, int V>
__device__ __forceinline__ void store_normed(const NormForwardArgs<T>& a, int64_t element,
                                             const float (&y)[V], bool streamed, Largest<T>& seen) {
  const Held<T, V> written = from_floats<T, V>(y);
  store_stream<T, V>(a.y + element, written, streamed);
  if (a.largest) seen.see(written);
}

// The sum of the fused op as it is stored: backward normalises the stored one. `bias`: zeros for
// none; `words`: the Philox block of `element`.
template <class T, int V>
__device__ __forceinline__ Held<T, V> residual_sum(const Held<T, V>& x, const Held<T, V>& bias,
                                                   const Held<T, V>& residual, bool dropping,
                                                   const DropoutArgs& dropout, const uint4& words,
                                                   int64_t element) {
  float v[V], b[V], r[V];
  to_floats<T>(x, v);
  to_floats<T>(bias, b);
  to_floats<T>(residual, r);
#pragma unroll
  for (int j = 0; j < V; ++j) v[j] += b[j];
  if (dropping) {
    float factor[V];
    factors_of_words<V>(dropout, words, element, factor);
#pragma unroll
    for (int j = 0; j < V; ++j) v[j] = fmaf(v[j], factor[j], r[j]);
  } else {
#pragma unroll
    for (int j = 0; j < V; ++j) v[j] += r[j];
  }
  return from_floats<T, V>(v);
}

// The same with the bias of a column, or null, and the block looked up; `v`: its floats.
template <class T, int V>
__device__ __forceinline__ Held<T, V> residual_sum_at(const Held<T, V>& x, const T* bias,
                                                      const Held<T, V>& residual, bool dropping,
                                                      const DropoutArgs& dropout, int64_t element,
                                                      int64_t column, float (&v)[V]) {
  Held<T, V> of_bias{};
  if (bias) of_bias = load_held<T, V>(bias + column);
  uint4 words{};
  if (dropping) words = philox_block(dropout, static_cast<uint64_t>(element) / 8);
  const Held<T, V> sum =
      residual_sum<T, V>(x, of_bias, residual, dropping, dropout, words, element);
  to_floats<T>(sum, v);
  return sum;
}

// The mean of the first elements of a row: a shift that takes the row's mean along, where one
// element may be far from it.
template <class T, int V>
__device__ __forceinline__ float row_shift(const T* row, int64_t width) {
  constexpr int kElements = V > 1 ? V : 4;
  float first[kElements];
  if constexpr (V > 1) {
    load_floats<T, V>(row, first);
  } else {
#pragma unroll
    for (int i = 0; i < kElements; ++i)
      first[i] = to_float(row[min(static_cast<int64_t>(i), width - 1)]);
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kElements; ++i) sum += first[i];
  return sum * (1.0f / kElements);
}

// E[d^2] - E[d]^2 of values d shifted by row_shift(). Where the first elements are outliers the
// difference loses digits, and where both squares overflow it is NaN: `centred` then gives the sum
// of (d - mean)^2. The answer is the same in all threads of the row.
template <class T, class Centred>
__device__ __forceinline__ float row_variance(float mean, float square, float width,
                                              const Centred& centred) {
  const float variance = square - mean * mean;
  constexpr float kLost = sizeof(T) == 2 ? 8 : 2;
  return variance * kLost >= square ? variance : centred() / width;
}

// 1 / sqrt(x). In float32 by two operations that round correctly: rsqrtf is up to two units off,
// and that for the whole row.
template <class T>
__device__ __forceinline__ float row_rstd(float x) {
  if constexpr (sizeof(T) == 2) return rsqrtf(x);
  return 1.0f / sqrtf(x);
}

// Takes the mean of the row, shift + mean_of_shifted, off a value. `rest` is what the rounded sum
// lacks (two-sum, Knuth, TAOCP 4.2.2), so that float32 rounds about once; bfloat16 values have no
// use for it.
template <class T>
struct Centre {
  float mean, rest;
  __device__ __forceinline__ Centre(float shift, float mean_of_shifted)
      : mean(shift + mean_of_shifted) {
    const float added = mean - shift;
    rest = (shift - (mean - added)) + (mean_of_shifted - added);
  }
  __device__ __forceinline__ float operator()(float x) const {
    if constexpr (sizeof(T) == 2) return x - mean;
    return (x - mean) - rest;
  }
  // Stores the centre that norm_apply subtracts: the values that were used here, not their inputs.
  // The compiler may fuse a multiplication into a computation from the inputs, which would round
  // differently.
  __device__ __forceinline__ void store(float* parts) const {
    parts[0] = mean;
    parts[1] = sizeof(T) == 2 ? 0.0f : rest;
  }
};

template <class T, int V, int Lanes, int P, bool kAddNorm>
__global__ void __launch_bounds__(kThreadsOfBlock<Lanes>, 1)
    norm_forward_rows(NormForwardArgs<T> a) {
  constexpr int kRows = kThreadsOfBlock<Lanes> / Lanes;
  __shared__ float2 shared[kThreadsOfBlock<Lanes> / 32];
  __shared__ float shared_centred[kWarpsOfRow<Lanes>];
  const int lane = threadIdx.x % Lanes;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRows + threadIdx.x / Lanes;
  const bool there = row < a.rows;  // the others take part in the shuffles
  const int width = there ? static_cast<int>(a.width) : 0;
  const int64_t start = row * a.width;
  Held<T, V> x[P] = {};
  [[maybe_unused]] Held<T, V> residual[kAddNorm ? P : 1] = {};
#pragma unroll
  for (int k = 0; k < P; ++k) {
    const int column = (k * Lanes + lane) * V;
    if (column < width) {
      if constexpr (kAddNorm) {
        x[k] = load_once<T, V>(a.x + start + column);
        residual[k] = load_once<T, V>(a.residual + start + column);
      } else {
        x[k] = load_stream<T, V>(a.x + start + column, a.streamed);
      }
    }
  }
  float shift = 0;
  if (there) shift = row_shift<T, V>((kAddNorm ? a.residual : a.x) + start, a.width);

  float v[P][V];
  float2 sums = {0, 0};
#pragma unroll
  for (int k = 0; k < P; ++k) {
    const int column = (k * Lanes + lane) * V;
    if (column < width) {
      if constexpr (kAddNorm) {
        store_held<T, V>(a.sum + start + column,
                         residual_sum_at<T, V>(x[k], a.bias, residual[k], a.dropping, a.dropout,
                                               start + column, column, v[k]));
      } else {
        to_floats<T>(x[k], v[k]);
      }
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const float d = v[k][j] - shift;
        sums.x += d;
        sums.y = fmaf(d, d, sums.y);
      }
    }
  }
  sums = row_sum2<Lanes>(sums, reinterpret_cast<float*>(shared));
  const float inverse_width = 1.0f / static_cast<float>(a.width);
  const float mean = sums.x * inverse_width;
  const Centre<T> centre(shift, mean);
  const float variance =
      row_variance<T>(mean, sums.y * inverse_width, static_cast<float>(a.width), [&] {
        float sum = 0;
#pragma unroll
        for (int k = 0; k < P; ++k) {
#pragma unroll
          for (int j = 0; j < V; ++j) {
            const float c = centre(v[k][j]);
            if ((k * Lanes + lane) * V < width) sum = fmaf(c, c, sum);
          }
        }
        return row_reduce<Add, Lanes>(sum, shared_centred);
      });
  const float rstd = row_rstd<T>(variance + a.epsilon);
  if (there && lane == 0 && a.mean) {
    a.mean[row] = centre.mean;
    a.rstd[row] = rstd;
    if (a.saved_mean) centre.store(a.saved_mean + 2 * row);
  }
  Largest<T> seen;
#pragma unroll
  for (int k = 0; k < P; ++k) {
    const int column = (k * Lanes + lane) * V;
    if (column < width) {
      float gamma[V], beta[V];
      load_floats<T, V>(a.gamma + column, gamma);
      load_floats<T, V>(a.beta + column, beta);
#pragma unroll
      for (int j = 0; j < V; ++j) v[k][j] = fmaf(centre(v[k][j]) * rstd, gamma[j], beta[j]);
      store_normed<T, V>(a, start + column, v[k], !kAddNorm && a.streamed, seen);
    }
  }
  if (a.largest) leave_largest<kThreadsOfBlock<Lanes>>(seen, a.largest);
}

// row_shift() of the sum, for all threads of a block that works on one row. Not of the residual: a
// narrow row must lose nothing when the shift is taken off, and one of a single element is its
// mean.
template <class T, int V>
__device__ __forceinline__ float residual_sum_shift(const NormForwardArgs<T>& a, int64_t start) {
  constexpr int kPacks = V > 1 ? 1 : 4;
  __shared__ float first[kPacks];
  if (threadIdx.x < kPacks) {
    const int64_t column = V > 1 ? 0 : min(static_cast<int64_t>(threadIdx.x), a.width - 1);
    float v[V];
    residual_sum_at<T, V>(load_held<T, V>(a.x + start + column), a.bias,
                          load_held<T, V>(a.residual + start + column), a.dropping, a.dropout,
                          start + column, column, v);
    float sum = 0;
#pragma unroll
    for (int j = 0; j < V; ++j) sum += v[j];
    first[threadIdx.x] = sum;
  }
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kPacks; ++i) sum += first[i];
  return sum * (1.0f / (kPacks * V));
}

// A block a row of any width. V is 1 or a whole pack.
inline constexpr int kNormLoopThreads = 256;
template <class T, int V, bool kAddNorm>
__global__ void __launch_bounds__(kNormLoopThreads) norm_forward_loop(NormForwardArgs<T> a) {
  __shared__ float2 shared[kNormLoopThreads / 32];
  __shared__ float shared_centred[kNormLoopThreads / 32];
  const int64_t row = blockIdx.x, start = row * a.width;
  // The input of the norm. In the fused op each thread reads back its own stores.
  const T* in = (kAddNorm ? a.sum : a.x) + start;
  float shift;
  if constexpr (kAddNorm)
    shift = residual_sum_shift<T, V>(a, start);
  else
    shift = row_shift<T, V>(in, a.width);
  float2 sums = {0, 0};
  for (int64_t column = threadIdx.x * V; column < a.width; column += kNormLoopThreads * V) {
    float v[V];
    if constexpr (kAddNorm) {
      store_held<T, V>(a.sum + start + column,
                       residual_sum_at<T, V>(load_held<T, V>(a.x + start + column), a.bias,
                                             load_held<T, V>(a.residual + start + column),
                                             a.dropping, a.dropout, start + column, column, v));
    } else {
      load_floats<T, V>(in + column, v);
    }
#pragma unroll
    for (int j = 0; j < V; ++j) {
      const float d = v[j] - shift;
      sums.x += d;
      sums.y = fmaf(d, d, sums.y);
    }
  }
  sums = row_sum2<kNormLoopThreads>(sums, reinterpret_cast<float*>(shared));
  const float count = static_cast<float>(a.width);
  const float mean = sums.x / count;
  const Centre<T> centre(shift, mean);
  const float variance = row_variance<T>(mean, sums.y / count, count, [&] {
    float sum = 0;
    for (int64_t column = threadIdx.x * V; column < a.width; column += kNormLoopThreads * V) {
      float v[V];
      load_floats<T, V>(in + column, v);
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const float c = centre(v[j]);
        sum = fmaf(c, c, sum);
      }
    }
    return row_reduce<Add, kNormLoopThreads>(sum, shared_centred);
  });
  const float rstd = row_rstd<T>(variance + a.epsilon);
  if (threadIdx.x == 0 && a.mean) {
    a.mean[row] = centre.mean;
    a.rstd[row] = rstd;
    if (a.saved_mean) centre.store(a.saved_mean + 2 * row);
  }
  Largest<T> seen;
  for (int64_t column = threadIdx.x * V; column < a.width; column += kNormLoopThreads * V) {
    float v[V], gamma[V], beta[V];
    load_floats<T, V>(in + column, v);
    load_floats<T, V>(a.gamma + column, gamma);
    load_floats<T, V>(a.beta + column, beta);
#pragma unroll
    for (int j = 0; j < V; ++j) v[j] = fmaf(centre(v[j]) * rstd, gamma[j], beta[j]);
    store_normed<T, V>(a, start + column, v, !kAddNorm && a.streamed, seen);
  }
  if (a.largest) leave_largest<kNormLoopThreads>(seen, a.largest);
}

template <bool kAddNorm, class T>
int32_t launch_norm_forward(DeviceState& device, const NormForwardArgs<T>& args, const char* name) {
  constexpr int V = kPackWidth<T>;
  const auto rows = [&](auto lanes, auto packs) {
    constexpr int Lanes = lanes(), P = packs(), kRows = kThreadsOfBlock<Lanes> / Lanes;
    norm_forward_rows<T, V, Lanes, P, kAddNorm>
        <<<static_cast<unsigned>((args.rows + kRows - 1) / kRows), kThreadsOfBlock<Lanes>, 0,
           device.stream>>>(args);
  };
  const auto grid = static_cast<unsigned>(args.rows);
  const bool packed = args.width % V == 0 && aligned16(args.x) && aligned16(args.bias) &&
                      aligned16(args.residual) && aligned16(args.gamma) && aligned16(args.beta) &&
                      aligned16(args.sum) && aligned16(args.y);
  const int64_t packs = args.width / V;
  using std::integral_constant;
  if (!packed)
    norm_forward_loop<T, 1, kAddNorm><<<grid, kNormLoopThreads, 0, device.stream>>>(args);
  else if (packs <= 32)
    rows(integral_constant<int, 32>{}, integral_constant<int, 1>{});
  else if (packs <= 64)
    rows(integral_constant<int, 32>{}, integral_constant<int, 2>{});
  else if (packs <= 96)
    rows(integral_constant<int, 32>{}, integral_constant<int, 3>{});
  else if (packs <= 128)
    rows(integral_constant<int, 32>{}, integral_constant<int, 4>{});
  else if (packs <= 256) {
    if constexpr (kAddNorm || sizeof(T) == 4)
      rows(integral_constant<int, 128>{}, integral_constant<int, 2>{});
    else
      rows(integral_constant<int, 64>{}, integral_constant<int, 4>{});
  } else if (packs <= 512)
    rows(integral_constant<int, 128>{}, integral_constant<int, 4>{});
  else if (packs <= 1024)
    rows(integral_constant<int, 256>{}, integral_constant<int, 4>{});
  else if (packs <= 2048)
    rows(integral_constant<int, 512>{}, integral_constant<int, 4>{});
  else
    norm_forward_loop<T, V, kAddNorm><<<grid, kNormLoopThreads, 0, device.stream>>>(args);
  return launched(device, name);
}

}  // namespace trafo::cuda
