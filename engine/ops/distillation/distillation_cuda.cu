// CUDA kernels of distillation: a block for each row. The first pass over the logits of both models
// finds the softmax sums, the second one the divergence and the gradient.
#include "engine/ops/distillation/distillation.h"

#include "engine/ops/cross_entropy/row_parts.cuh"

namespace trafo {
namespace cuda {
namespace {

// e^x; float32 within an ulp or two, bfloat16 from the special function unit.
template <class T>
__device__ __forceinline__ float power(float x) {
  if constexpr (sizeof(T) == 4)
    return expf(x);
  else
    return __expf(x);
}

// The largest logit, the sums of e^(x - top) and of e^((x - top) / h).
template <class T>
struct SoftmaxSums {
  float top = Max::kIdentity;  // finite, so that exp(-infinity - top) is 0 and not NaN
  float plain = 0, soft = 0;

  template <int N>
  __device__ __forceinline__ void add(const float (&x)[N], float inverse) {
    float high = x[0];
#pragma unroll
    for (int i = 1; i < N; ++i) high = fmaxf(high, x[i]);
    if (high > top) {
      plain *= power<T>(top - high);
      soft *= power<T>((top - high) * inverse);
      top = high;
    }
#pragma unroll
    for (int i = 0; i < N; ++i) {
      plain += power<T>(x[i] - top);
      soft += power<T>((x[i] - top) * inverse);
    }
  }

  // Of the block; three barriers.
  template <int Threads>
  __device__ __forceinline__ void combine(float (&shared)[3][Threads / 32], float inverse) {
    const float highest = row_reduce<Max, Threads>(top, shared[0]);
    plain = row_reduce<Add, Threads>(plain * power<T>(top - highest), shared[1]);
    soft = row_reduce<Add, Threads>(soft * power<T>((top - highest) * inverse), shared[2]);
    top = highest;
  }
};

// log softmax(x / h) = (x - top) / h - log_sum.
struct LogSoftmax {
  float top, inverse, log_sum;
  __device__ __forceinline__ float operator()(float x) const {
    return (x - top) * inverse - log_sum;
  }
};

struct RowStats {
  LogSoftmax plain, soft, teacher;
};

struct MixtureArgs {
  double share, temperature, smoothing;
  float inverse;  // 1 / temperature
  int32_t ignore_label;
  int64_t classes, stride;
};

// dx of one row but for `hit`, which the label has less.
template <class T>
struct RowGradient {
  RowStats stats;
  float hard, spread, hit, soft;
  bool both;
  __device__ __forceinline__ RowGradient(const MixtureArgs& a, const RowStats& of_row, double g)
      : stats(of_row), both(a.share < 1) {
    const double of_labels = g * (1 - a.share);
    hard = static_cast<float>(of_labels);
    spread = static_cast<float>(of_labels * a.smoothing / static_cast<double>(a.classes));
    hit = static_cast<float>(of_labels * (1 - a.smoothing));
    soft = static_cast<float>(g * a.share * a.temperature);
  }
  __device__ __forceinline__ float of(float x, float log_p, float q) const {
    const float softened = soft * (power<T>(log_p) - q);
    return both ? softened + (hard * power<T>(stats.plain(x)) - spread) : softened;
  }
};

// use(first column, number of columns at compile time) for the parts of this thread.
template <class T, int Threads, class Use>
__device__ __forceinline__ void for_row(const RowParts<T>& parts, const Use& use) {
  constexpr int W = kPackWidth<T>;
  for (int64_t e = threadIdx.x; e < parts.edges; e += Threads)
    use(parts.edge(e), std::integral_constant<int, 1>{});
#pragma unroll 2
  for (int i = threadIdx.x; i < parts.packs; i += Threads)
    use(parts.head + int64_t{i} * W, std::integral_constant<int, W>{});
}

// The parts of rows that are read and written together; without a common 16-byte boundary no packs.
template <class T>
__device__ __forceinline__ RowParts<T> common_parts(const T* x, const T* y, const T* out,
                                                    int64_t classes) {
  RowParts<T> parts(x, classes);
  const auto apart = [&](const T* other) {
    return other && (reinterpret_cast<uintptr_t>(x) - reinterpret_cast<uintptr_t>(other)) % 16 != 0;
  };
  if (apart(y) || apart(out)) parts.take_apart(classes);
  return parts;
}

template <class T>
struct ForwardArgs {
  MixtureArgs mixture;
  const T* logits;
  const T* teacher;
  const int32_t* labels;
  const float* weights;  // or null
  float* loss;
  float* nll;
  float* stats;  // or null
  double dloss;
  T* dlogits;  // or null; may be logits
};

// `shared` [Threads / 32], used by this call only; the sum is in all threads. One barrier.
template <int Threads>
__device__ __forceinline__ double block_sum(double x, double* shared) {
  for (int lane = 16; lane > 0; lane /= 2) x += __shfl_xor_sync(0xffffffffu, x, lane);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  double sum = 0;
  for (int warp = 0; warp < Threads / 32; ++warp) sum += shared[warp];
  return sum;
}

template <class T, int Threads>
__global__ void __launch_bounds__(Threads) forward_kernel(ForwardArgs<T> a) {
  __shared__ float shared[2][3][Threads / 32];
  __shared__ double wide[2][Threads / 32];
  const MixtureArgs& m = a.mixture;
  const int64_t t = blockIdx.x;
  const int32_t label = a.labels[t];
  T* out = a.dlogits ? a.dlogits + t * m.stride : nullptr;
  if (label == m.ignore_label) {
    if (threadIdx.x == 0) {
      a.loss[t] = a.nll[t] = 0;
      if (a.stats)
        for (int i = 0; i < kDistillationStats; ++i) a.stats[t * kDistillationStats + i] = 0;
    }
    if (out) clear_row<T, Threads>(out, m.classes);
    return;
  }
  const T* row = a.logits + t * m.stride;
  const T* teacher = a.teacher + t * m.stride;
  const RowParts<T> parts = common_parts<T>(row, teacher, out, m.classes);
  // Before any thread can write a gradient over it: the barriers of the sums come later.
  const float at_label = to_float(row[label]);

  SoftmaxSums<T> student_sums, teacher_sums;
  for_row<T, Threads>(parts, [&](int64_t c, auto columns) {
    constexpr int N = decltype(columns)::value;
    float x[N], y[N];
    load_floats<T, N>(row + c, x);
    load_floats<T, N>(teacher + c, y);
    student_sums.add(x, m.inverse);
    teacher_sums.add(y, m.inverse);
  });
  student_sums.template combine<Threads>(shared[0], m.inverse);
  teacher_sums.template combine<Threads>(shared[1], m.inverse);
  RowStats stats;
  stats.plain = {student_sums.top, 1.0f, logf(student_sums.plain)};
  stats.soft = {student_sums.top, m.inverse, logf(student_sums.soft)};
  stats.teacher = {teacher_sums.top, m.inverse, logf(teacher_sums.soft)};

  const double weight = a.weights ? static_cast<double>(a.weights[t]) : 1.0;
  const RowGradient<T> gradient(m, stats, a.dloss * weight);
  const bool smooth = m.smoothing > 0 && m.share < 1;
  float divergence = 0;
  double below = 0;  // the largest logit less each
  for_row<T, Threads>(parts, [&](int64_t c, auto columns) {
    constexpr int N = decltype(columns)::value;
    float x[N], y[N];
    load_floats<T, N>(row + c, x);
    load_floats<T, N>(teacher + c, y);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float log_q = stats.teacher(y[j]), log_p = stats.soft(x[j]);
      const float q = power<T>(log_q);
      // A class without q counts for nothing, whatever its logits are.
      divergence += q == 0 ? 0.0f : q * (log_q - log_p);
      if (smooth) below += static_cast<double>(stats.plain.top) - static_cast<double>(x[j]);
      x[j] = gradient.of(x[j], log_p, q) - (c + j == label ? gradient.hit : 0.0f);
    }
    if (out) store_floats<T, N>(out + c, x);
  });
  const double sum = block_sum<Threads>(static_cast<double>(divergence), wide[0]);
  if (smooth) below = block_sum<Threads>(below, wide[1]);
  if (threadIdx.x != 0) return;
  const auto log_sum = static_cast<double>(stats.plain.log_sum);
  const double hit =
      (static_cast<double>(stats.plain.top) - static_cast<double>(at_label)) + log_sum;
  double mixed = m.share * m.temperature * m.temperature * sum;
  if (m.share < 1) {
    double hard = (1 - m.smoothing) * hit;
    if (smooth) hard += m.smoothing * (below / static_cast<double>(m.classes) + log_sum);
    mixed += (1 - m.share) * hard;
  }
  a.nll[t] = static_cast<float>(weight * hit);
  a.loss[t] = static_cast<float>(weight * mixed);
  if (!a.stats) return;
  float* saved = a.stats + t * kDistillationStats;
  saved[0] = stats.plain.top;
  saved[1] = stats.plain.log_sum;
  saved[2] = stats.soft.log_sum;
  saved[3] = stats.teacher.top;
  saved[4] = stats.teacher.log_sum;
}

template <class T>
struct BackwardArgs {
  MixtureArgs mixture;
  double scale;
  bool per_row, accumulate;
  const T* logits;
  const T* teacher;
  const int32_t* labels;
  const float* weights;  // or null
  const float* stats;
  const float* dloss;
  T* dlogits;
};

template <class T, int Threads>
__global__ void __launch_bounds__(Threads) backward_kernel(BackwardArgs<T> a) {
  const MixtureArgs& m = a.mixture;
  const int64_t t = blockIdx.x;
  const int32_t label = a.labels[t];
  const T* row = a.logits + t * m.stride;
  const T* teacher = a.teacher + t * m.stride;
  T* out = a.dlogits + t * m.stride;
  if (label == m.ignore_label) {
    if (!a.accumulate) clear_row<T, Threads>(out, m.classes);
    return;
  }
  const float* saved = a.stats + t * kDistillationStats;
  RowStats stats;
  stats.plain = {saved[0], 1.0f, saved[1]};
  stats.soft = {saved[0], m.inverse, saved[2]};
  stats.teacher = {saved[3], m.inverse, saved[4]};
  const double weight = a.weights ? static_cast<double>(a.weights[t]) : 1.0;
  const RowGradient<T> gradient(m, stats,
                                a.scale * weight * static_cast<double>(a.dloss[a.per_row ? t : 0]));
  for_row<T, Threads>(common_parts<T>(row, teacher, out, m.classes), [&](int64_t c, auto columns) {
    constexpr int N = decltype(columns)::value;
    float x[N], y[N];
    load_floats<T, N>(row + c, x);
    load_floats<T, N>(teacher + c, y);
#pragma unroll
    for (int j = 0; j < N; ++j)
      x[j] = gradient.of(x[j], stats.soft(x[j]), power<T>(stats.teacher(y[j]))) -
             (c + j == label ? gradient.hit : 0.0f);
    put_floats<T, N>(out + c, x, a.accumulate);
  });
}

template <class Params>
MixtureArgs mixture_args(const Params& p, int64_t stride) {
  return {p.share,
          p.temperature,
          p.label_smoothing,
          static_cast<float>(1 / p.temperature),
          p.ignore_label,
          p.classes,
          stride};
}

// run(threads of a block) for rows of `packs`.
template <class Run>
int32_t with_threads(int64_t packs, const Run& run) {
  if (packs <= 512) return run(std::integral_constant<int, 128>{});
  if (packs <= 2048) return run(std::integral_constant<int, 256>{});
  return run(std::integral_constant<int, 512>{});
}

template <class T>
int32_t forward(DeviceState& device, const DistillationForwardParams& p) {
  const ForwardArgs<T> args{mixture_args(p, p.stride),
                            static_cast<const T*>(p.logits),
                            static_cast<const T*>(p.teacher),
                            p.labels,
                            static_cast<const float*>(p.weights),
                            static_cast<float*>(p.loss),
                            static_cast<float*>(p.nll),
                            static_cast<float*>(p.stats),
                            p.dloss,
                            static_cast<T*>(p.dlogits)};
  return with_threads(p.classes / kPackWidth<T>, [&](auto threads) {
    forward_kernel<T, threads()>
        <<<static_cast<unsigned>(p.rows), threads(), 0, device.stream>>>(args);
    return launched(device, "distillation_forward");
  });
}

template <class T>
int32_t backward(DeviceState& device, const DistillationBackwardParams& p) {
  const BackwardArgs<T> args{mixture_args(p, p.classes),
                             p.scale,
                             p.per_row,
                             p.accumulate,
                             static_cast<const T*>(p.logits),
                             static_cast<const T*>(p.teacher),
                             p.labels,
                             static_cast<const float*>(p.weights),
                             static_cast<const float*>(p.stats),
                             static_cast<const float*>(p.dloss),
                             static_cast<T*>(p.dlogits)};
  return with_threads(p.classes / kPackWidth<T>, [&](auto threads) {
    backward_kernel<T, threads()>
        <<<static_cast<unsigned>(p.rows), threads(), 0, device.stream>>>(args);
    return launched(device, "distillation_backward");
  });
}

}  // namespace
}  // namespace cuda

int32_t distillation_forward_cuda(cuda::DeviceState& device, const DistillationForwardParams& p) {
  using namespace cuda;
  if (p.rows == 0) return kSuccess;
  int32_t result = kSuccess;
  const bool known =
      with_device_type(p.dtype, [&](auto zero) { result = forward<decltype(zero)>(device, p); });
  return known ? result : unsupported(device, "distillation: CUDA has float32 and bfloat16");
}

int32_t distillation_backward_cuda(cuda::DeviceState& device, const DistillationBackwardParams& p) {
  using namespace cuda;
  if (p.rows == 0 || p.classes == 0) return kSuccess;
  int32_t result = kSuccess;
  const bool known =
      with_device_type(p.dtype, [&](auto zero) { result = backward<decltype(zero)>(device, p); });
  return known ? result : unsupported(device, "distillation: CUDA has float32 and bfloat16");
}

}  // namespace trafo
