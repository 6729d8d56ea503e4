// out[i] (+)= f(in0[i], in1[i], ..) over contiguous memory, at the speed of the memory.
#pragma once

#include "engine/backend/cuda/device/numeric.cuh"
#include "engine/backend/cuda/device_state.h"

namespace trafo::cuda {

// N elements as float32: in accesses of up to 16 bytes, which need that alignment; N 1 needs none.
template <int N, class T>
__device__ __forceinline__ void load_floats(const T* p, float (&v)[N]) {
  constexpr int kStep = N < kPackWidth<T> ? N : kPackWidth<T>;
  static_assert(N % kStep == 0);
#pragma unroll
  for (int i = 0; i < N; i += kStep) {
    const auto pack = load_pack<T, kStep>(p + i);
#pragma unroll
    for (int j = 0; j < kStep; ++j) v[i + j] = to_float(pack.v[j]);
  }
}

template <int N, class T>
__device__ __forceinline__ void store_floats(T* p, const float (&v)[N]) {
  constexpr int kStep = N < kPackWidth<T> ? N : kPackWidth<T>;
#pragma unroll
  for (int i = 0; i < N; i += kStep) {
    Pack<T, kStep> pack;
#pragma unroll
    for (int j = 0; j < kStep; ++j) pack.v[j] = from_float<T>(v[i + j]);
    store_pack(p + i, pack);
  }
}

// The same for the first `count` < N of them, one by one; the rest of v is 0.
template <int N, class T>
__device__ __forceinline__ void load_some(const T* p, int64_t count, float (&v)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) v[i] = i < count ? to_float(p[i]) : 0.0f;
}

template <int N, class T>
__device__ __forceinline__ void store_some(T* p, int64_t count, const float (&v)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i)
    if (i < count) p[i] = from_float<T>(v[i]);
}

inline constexpr int kElementwiseThreads = 256;

template <class In, int kInputs>
struct ElementwiseInputs {
  const In* at[kInputs];
};

// f(first, in, out): in [kInputs][kWidth], out [kWidth], for elements first .. first + kWidth - 1;
// `first` is a multiple of kWidth. Past the end `in` is 0 and `out` is dropped.
template <class In, class Out, int kInputs, int kWidth, int kUnroll, class F>
__global__ void __launch_bounds__(kElementwiseThreads)
    elementwise_kernel(ElementwiseInputs<In, kInputs> in, Out* out, int64_t count, bool accumulate,
                       F f) {
  const int64_t start =
      (int64_t{blockIdx.x} * kElementwiseThreads * kUnroll + threadIdx.x) * kWidth;
  float v[kUnroll][kInputs][kWidth];
  float old[kUnroll][kWidth];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int64_t first = start + u * kElementwiseThreads * kWidth;
    if (first + kWidth <= count) {
#pragma unroll
      for (int k = 0; k < kInputs; ++k) load_floats(in.at[k] + first, v[u][k]);
      if (accumulate) load_floats(out + first, old[u]);
    } else if (first < count) {
#pragma unroll
      for (int k = 0; k < kInputs; ++k) load_some(in.at[k] + first, count - first, v[u][k]);
      if (accumulate) load_some(out + first, count - first, old[u]);
    }
  }
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int64_t first = start + u * kElementwiseThreads * kWidth;
    if (first >= count) break;
    float result[kWidth];
    f(first, v[u], result);
    if (accumulate) {
#pragma unroll
      for (int j = 0; j < kWidth; ++j) result[j] += old[u][j];
    }
    if (first + kWidth <= count)
      store_floats(out + first, result);
    else
      store_some(out + first, count - first, result);
  }
}

// kWidth: elements a thread takes at a time where everything is aligned; two such runs are in
// flight.
template <int kWidth, class In, class Out, int kInputs, class F>
int32_t elementwise(DeviceState& device, const char* name, const ElementwiseInputs<In, kInputs>& in,
                    Out* out, int64_t count, bool accumulate, F f) {
  if (count == 0) return kSuccess;
  bool aligned = aligned16(out);
  for (int k = 0; k < kInputs; ++k) aligned = aligned && aligned16(in.at[k]);
  const auto blocks = [&](int64_t per_block) {
    return static_cast<unsigned>((count - 1) / per_block + 1);
  };
  if (aligned)
    elementwise_kernel<In, Out, kInputs, kWidth, 2, F>
        <<<blocks(kElementwiseThreads * 2 * kWidth), kElementwiseThreads, 0, device.stream>>>(
            in, out, count, accumulate, f);
  else
    elementwise_kernel<In, Out, kInputs, 1, 4, F>
        <<<blocks(kElementwiseThreads * 4), kElementwiseThreads, 0, device.stream>>>(in, out, count,
                                                                                     accumulate, f);
  return launched(device, name);
}

}  // namespace trafo::cuda
