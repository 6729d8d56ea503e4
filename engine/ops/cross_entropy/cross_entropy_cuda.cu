#include "engine/ops/cross_entropy/cross_entropy.h"

#include "engine/backend/cuda/device/numeric.cuh"
#include "engine/backend/cuda/device/reduce.cuh"
#include "engine/backend/cuda/device_state.h"

namespace trafo {
namespace cuda {
namespace {

constexpr int kUnroll = 4;  // 16-byte loads in flight a thread

// Rows below this length get blocks of 128 threads, longer ones of 512.
constexpr int64_t kShortRow = 4096;

// e^x: within an ulp or two for float32; bfloat16 has no use for the bits below 2^-20 and the
// special function unit is faster.
template <class T>
__device__ __forceinline__ float exponential(float x) {
  if constexpr (sizeof(T) == 2) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.4426950408889634f));
    return y;
  } else {
    return expf(x);
  }
}

// Elements before the first 16-byte boundary of a row.
template <class T>
__device__ __forceinline__ int64_t head_elements(const T* row, int64_t classes) {
  const auto past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(row) % 16);
  return past == 0 ? 0 : min(classes, (16 - past) / static_cast<int64_t>(sizeof(T)));
}

// Running maximum, sum of exponentials relative to it, and sum of the logits.
struct RowSums {
  // From the lowest finite number and not -infinity: exp(-infinity - maximum) is then 0 and not
  // NaN.
  float maximum = Max::kIdentity;
  float sum_exp = 0;
  float total = 0;

  template <class T, int N>
  __device__ __forceinline__ void add(const float (&x)[N]) {
    float high = x[0];
#pragma unroll
    for (int i = 1; i < N; ++i) high = fmaxf(high, x[i]);
    if (high > maximum) {
      sum_exp *= exponential<T>(maximum - high);
      maximum = high;
    }
    float part = 0, part_total = 0;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      part += exponential<T>(x[i] - maximum);
      part_total += x[i];
    }
    sum_exp += part;
    total += part_total;
  }
};

struct LossArgs {
  double smoothing;
  int32_t ignore_label;
  int64_t classes;
};

// A block for each row, read once.
template <class T, int Threads>
__global__ void __launch_bounds__(Threads)
    forward_kernel(LossArgs a, const T* __restrict__ logits, const int32_t* __restrict__ labels,
                   const float* __restrict__ weights, float* __restrict__ loss,
                   float* __restrict__ nll, float* __restrict__ lse) {
  constexpr int W = kPackWidth<T>;
  __shared__ float shared[Threads / 32];
  const int64_t t = blockIdx.x;
  const int32_t label = labels[t];
  if (label == a.ignore_label) {
    if (threadIdx.x == 0) loss[t] = nll[t] = lse[t] = 0;
    return;
  }
  const T* row = logits + t * a.classes;
  RowSums sums;
  const int64_t head = head_elements(row, a.classes);
  const int64_t packs = (a.classes - head) / W;
  for (int64_t c = threadIdx.x; c < head; c += Threads) {
    const float x[1] = {to_float(row[c])};
    sums.add<T>(x);
  }
  const T* body = row + head;
  int64_t i = threadIdx.x;
  for (; i + (kUnroll - 1) * Threads < packs; i += kUnroll * Threads) {
    Pack<T, W> loaded[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) loaded[u] = load_pack<T, W>(body + (i + u * Threads) * W);
    float x[kUnroll * W];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
#pragma unroll
      for (int j = 0; j < W; ++j) x[u * W + j] = to_float(loaded[u].v[j]);
    sums.add<T>(x);
  }
  for (; i < packs; i += Threads) {
    const Pack<T, W> loaded = load_pack<T, W>(body + i * W);
    float x[W];
#pragma unroll
    for (int j = 0; j < W; ++j) x[j] = to_float(loaded.v[j]);
    sums.add<T>(x);
  }
  for (int64_t c = head + packs * W + threadIdx.x; c < a.classes; c += Threads) {
    const float x[1] = {to_float(row[c])};
    sums.add<T>(x);
  }

  const float maximum = block_reduce<Max, Threads>(sums.maximum, shared);
  const float sum_exp =
      block_reduce<Add, Threads>(sums.sum_exp * expf(sums.maximum - maximum), shared);
  const float total = block_reduce<Add, Threads>(sums.total, shared);
  if (threadIdx.x == 0) {
    const double log_sum = static_cast<double>(maximum) + static_cast<double>(logf(sum_exp));
    const double weight = weights ? static_cast<double>(weights[t]) : 1.0;
    const double hit = log_sum - static_cast<double>(to_float(row[label]));
    const double mean = static_cast<double>(total) / static_cast<double>(a.classes);
    nll[t] = static_cast<float>(weight * hit);
    loss[t] = a.smoothing > 0 ? static_cast<float>(weight * ((1 - a.smoothing) * hit +
                                                             a.smoothing * (log_sum - mean)))
                              : static_cast<float>(weight * hit);
    lse[t] = static_cast<float>(log_sum);
  }
}

// A block for each row: one read, one write. `logits` and `dlogits` may be the same memory: no
// __restrict__.
template <class T, int Threads, bool Accumulate>
__global__ void __launch_bounds__(Threads)
    backward_kernel(LossArgs a, double scale, bool per_row, const T* logits, const int32_t* labels,
                    const float* weights, const float* lse, const float* dloss, T* dlogits) {
  constexpr int W = kPackWidth<T>;
  // From the last row on: what forward has read last may still be in the cache.
  const int64_t t = static_cast<int64_t>(gridDim.x) - 1 - blockIdx.x;
  const int32_t label = labels[t];
  const T* row = logits + t * a.classes;
  T* out = dlogits + t * a.classes;
  const bool ignored = label == a.ignore_label;
  if (Accumulate && ignored) return;

  const float log_sum = lse[t];
  const double g = ignored ? 0.0
                           : scale * (weights ? static_cast<double>(weights[t]) : 1.0) *
                                 static_cast<double>(dloss[per_row ? t : 0]);
  const auto gradient = static_cast<float>(g);
  const auto spread = static_cast<float>(g * a.smoothing / static_cast<double>(a.classes));
  const auto hit = static_cast<float>(g * (1 - a.smoothing));
  const auto value = [&](float x, bool is_label, float old) {
    const float d = fmaf(gradient, exponential<T>(x - log_sum), -spread) - (is_label ? hit : 0.0f);
    return from_float<T>(Accumulate ? old + d : d);
  };
  const auto one = [&](int64_t c) {
    out[c] = ignored ? from_float<T>(0.0f)
                     : value(to_float(row[c]), c == label, Accumulate ? to_float(out[c]) : 0.0f);
  };
  int64_t head = head_elements(row, a.classes);
  int64_t packs = (a.classes - head) / W;
  if (head_elements(out, a.classes) !=
      head) {  // the two rows never meet a 16-byte boundary together
    head = a.classes;
    packs = 0;
  }
  for (int64_t c = threadIdx.x; c < head; c += Threads) one(c);
  const T* body = row + head;
  T* out_body = out + head;
  const auto finish = [&](int64_t i, Pack<T, W> x, Pack<T, W> old) {
    // Only one pack of the row holds the label.
    const int64_t place = label - head - i * W;
    if (!ignored) {
      if (place >= 0 && place < W) {
#pragma unroll
        for (int j = 0; j < W; ++j)
          x.v[j] = value(to_float(x.v[j]), j == place, to_float(old.v[j]));
      } else {
#pragma unroll
        for (int j = 0; j < W; ++j) x.v[j] = value(to_float(x.v[j]), false, to_float(old.v[j]));
      }
    } else {
#pragma unroll
      for (int j = 0; j < W; ++j) x.v[j] = from_float<T>(0.0f);
    }
    store_pack(out_body + i * W, x);
  };
  int64_t i = threadIdx.x;
  for (; i + (kUnroll - 1) * Threads < packs; i += kUnroll * Threads) {
    Pack<T, W> x[kUnroll], old[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      x[u] = load_pack<T, W>(body + (i + u * Threads) * W);
      if constexpr (Accumulate) old[u] = load_pack<T, W>(out_body + (i + u * Threads) * W);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) finish(i + u * Threads, x[u], Accumulate ? old[u] : x[u]);
  }
  for (; i < packs; i += Threads) {
    const Pack<T, W> x = load_pack<T, W>(body + i * W);
    finish(i, x, Accumulate ? load_pack<T, W>(out_body + i * W) : x);
  }
  for (int64_t c = head + packs * W + threadIdx.x; c < a.classes; c += Threads) one(c);
}

template <class T, int Threads>
void backward(DeviceState& device, const CrossEntropyBackwardParams& p) {
  const LossArgs args{p.label_smoothing, p.ignore_label, p.classes};
  const auto run = [&](auto kernel) {
    kernel<<<static_cast<unsigned>(p.rows), Threads, 0, device.stream>>>(
        args, p.scale, p.per_row, static_cast<const T*>(p.logits), p.labels,
        static_cast<const float*>(p.weights), static_cast<const float*>(p.lse),
        static_cast<const float*>(p.dloss), static_cast<T*>(p.dlogits));
  };
  if (p.accumulate)
    run(backward_kernel<T, Threads, true>);
  else
    run(backward_kernel<T, Threads, false>);
}

}  // namespace
}  // namespace cuda

int32_t cross_entropy_forward_cuda(cuda::DeviceState& device, const CrossEntropyForwardParams& p) {
  using namespace cuda;
  if (p.rows == 0) return kSuccess;
  const bool known = with_device_type(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const LossArgs args{p.label_smoothing, p.ignore_label, p.classes};
    const auto run = [&](auto kernel, int threads) {
      kernel<<<static_cast<unsigned>(p.rows), threads, 0, device.stream>>>(
          args, static_cast<const T*>(p.logits), p.labels, static_cast<const float*>(p.weights),
          static_cast<float*>(p.loss), static_cast<float*>(p.nll), static_cast<float*>(p.lse));
    };
    if (p.classes < kShortRow)
      run(forward_kernel<T, 128>, 128);
    else
      run(forward_kernel<T, 512>, 512);
  });
  if (!known) return unsupported(device, "cross_entropy: CUDA has float32 and bfloat16");
  return launched(device, "cross_entropy_forward");
}

int32_t cross_entropy_backward_cuda(cuda::DeviceState& device,
                                    const CrossEntropyBackwardParams& p) {
  using namespace cuda;
  if (p.rows == 0 || p.classes == 0) return kSuccess;
  const bool known = with_device_type(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (p.classes < kShortRow)
      backward<T, 128>(device, p);
    else
      backward<T, 512>(device, p);
  });
  if (!known) return unsupported(device, "cross_entropy: CUDA has float32 and bfloat16");
  return launched(device, "cross_entropy_backward");
}

}  // namespace trafo
