#include "engine/ops/optimizer/optimizer.h"

#include <cmath>

#include "engine/backend/cuda/device/numeric.cuh"
#include "engine/backend/cuda/device_state.h"

namespace trafo {
namespace cuda {
namespace {

constexpr int kThreads = 256;

// Elements of one partial sum: fixed, so that the sum is the same on every device.
constexpr int64_t kBlockElements = 32768;

// The sum over the block, in thread 0; always in the same order.
__device__ double block_sum(double x) {
  __shared__ double warp_sums[kThreads / 32];
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = x;
  __syncthreads();
  double total = 0;
  if (threadIdx.x == 0)
    for (int w = 0; w < kThreads / 32; ++w) total += warp_sums[w];
  return total;
}

// Widened before squaring: the square of a finite float is always a finite double.
template <class T, int W>
__global__ void __launch_bounds__(kThreads)
    sum_of_squares_kernel(const T* __restrict__ x, int64_t count, double* __restrict__ partial) {
  constexpr int kUnroll = 4;
  const int64_t begin = blockIdx.x * kBlockElements;
  const int64_t end = min(begin + kBlockElements, count);
  double sum = 0;
  int64_t i = begin + threadIdx.x * W;
  constexpr int64_t kStep = int64_t{kThreads} * W;
  for (; i + (kUnroll - 1) * kStep + W <= end; i += kUnroll * kStep) {
    Pack<T, W> packs[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) packs[u] = load_pack<T, W>(x + i + u * kStep);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
#pragma unroll
      for (int j = 0; j < W; ++j) {
        const double value = to_float(packs[u].v[j]);
        sum = fma(value, value, sum);
      }
  }
  for (; i < end; i += kStep)
    for (int64_t j = i; j < min(i + W, end); ++j) {
      const double value = to_float(x[j]);
      sum = fma(value, value, sum);
    }
  sum = block_sum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads)
    sum_partials_kernel(const double* __restrict__ partial, int64_t count,
                        double* __restrict__ out) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += kThreads) sum += partial[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *out = sum;
}

struct AdamWArgs {
  float grad_scale, beta1, rest1, beta2, rest2, correction2, epsilon, rate, keep;
  bool applied;
};

// 1 - beta^step without cancellation for beta near one; 1 for beta = 0.
__host__ __device__ double bias_correction(double beta, int64_t step) {
  return beta > 0 ? -expm1(static_cast<double>(step) * log(beta)) : 1.0;
}

struct AdamWConstants {
  double beta1, beta2, epsilon, weight_decay;

  __host__ __device__ AdamWArgs args(double learning_rate, double grad_scale, int64_t step) const {
    AdamWArgs a;
    a.grad_scale = static_cast<float>(grad_scale);
    a.beta1 = static_cast<float>(beta1);
    a.rest1 = static_cast<float>(1 - beta1);
    a.beta2 = static_cast<float>(beta2);
    a.rest2 = static_cast<float>(1 - beta2);
    a.correction2 = static_cast<float>(1 / bias_correction(beta2, step));
    a.epsilon = static_cast<float>(epsilon);
    a.rate = static_cast<float>(learning_rate / bias_correction(beta1, step));
    a.keep = static_cast<float>(1 - learning_rate * weight_decay);
    a.applied = true;
    return a;
  }
};

// What clipped_adamw decides between its norm and its update; one block.
__global__ void __launch_bounds__(kThreads)
    decide_update_kernel(AdamWConstants constants, double max_norm,
                         const double* __restrict__ partial, int64_t count,
                         const float* __restrict__ loss, const float* __restrict__ nll,
                         const LearningRates* __restrict__ rates, UpdateRecord* record,
                         AdamWArgs* args) {
  double squares = 0;
  for (int64_t i = threadIdx.x; i < count; i += kThreads) squares += partial[i];
  squares = block_sum(squares);
  if (threadIdx.x != 0) return;
  UpdateRecord r = *record;
  r.loss = *loss;
  r.nll = *nll;
  r.norm = sqrt(squares);
  r.learning_rate = rates->rates[r.updates + 1 - rates->first];
  r.applied = isfinite(r.loss) && isfinite(r.norm);
  AdamWArgs a{};
  if (r.applied) {
    ++r.updates;
    const bool clipped = max_norm > 0 && r.norm > max_norm;
    a = constants.args(r.learning_rate, clipped ? max_norm / r.norm : 1.0, r.updates);
  }
  *args = a;
  *record = r;
}

// `decided`: arguments that a kernel left in device memory, instead of `given`.
template <int W>
__global__ void __launch_bounds__(kThreads)
    adamw_kernel(AdamWArgs given, const AdamWArgs* __restrict__ decided, int64_t count,
                 float* __restrict__ param, const float* __restrict__ grad, float* __restrict__ m,
                 float* __restrict__ v, bf16* __restrict__ rounded) {
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * W;
  if (i >= count) return;
  const AdamWArgs a = decided ? *decided : given;
  if (!a.applied) return;
  const auto update = [&](float g, float& momentum, float& variance, float& value) {
    g *= a.grad_scale;
    momentum = fmaf(momentum, a.beta1, g * a.rest1);
    variance = fmaf(variance, a.beta2, g * g * a.rest2);
    const float denominator = sqrtf(variance * a.correction2) + a.epsilon;
    value = fmaf(-a.rate, momentum / denominator, value * a.keep);
  };
  if (i + W <= count) {
    const Pack<float, W> g = load_pack<float, W>(grad + i);
    Pack<float, W> momentum = load_pack<float, W>(m + i), variance = load_pack<float, W>(v + i);
    Pack<float, W> value = load_pack<float, W>(param + i);
#pragma unroll
    for (int j = 0; j < W; ++j) update(g.v[j], momentum.v[j], variance.v[j], value.v[j]);
    store_pack(m + i, momentum);
    store_pack(v + i, variance);
    store_pack(param + i, value);
    if (rounded) {
      Pack<bf16, W> narrow;
#pragma unroll
      for (int j = 0; j < W; ++j) narrow.v[j] = from_float<bf16>(value.v[j]);
      store_pack(rounded + i, narrow);
    }
  } else {
    for (int64_t j = i; j < count; ++j) {
      update(grad[j], m[j], v[j], param[j]);
      if (rounded) rounded[j] = from_float<bf16>(param[j]);
    }
  }
}

// One partial sum of squares a block of elements.
int64_t square_blocks(int64_t count) {
  return (count + kBlockElements - 1) / kBlockElements;
}

template <class T>
void launch_squares(DeviceState& device, const T* x, int64_t count, double* partial) {
  const auto grid = static_cast<unsigned>(square_blocks(count));
  if (grid == 0) return;
  if (aligned16(x))
    sum_of_squares_kernel<T, kPackWidth<T>>
        <<<grid, kThreads, 0, device.stream>>>(x, count, partial);
  else
    sum_of_squares_kernel<T, 1><<<grid, kThreads, 0, device.stream>>>(x, count, partial);
}

// Params of either update.
template <class Params>
int32_t launch_adamw(DeviceState& device, const Params& p, const AdamWArgs& given,
                     const AdamWArgs* decided, const char* name) {
  auto* param = static_cast<float*>(p.param);
  const auto* grad = static_cast<const float*>(p.grad);
  auto* m = static_cast<float*>(p.m);
  auto* v = static_cast<float*>(p.v);
  auto* rounded = static_cast<bf16*>(p.param_bf16);
  const bool vectors = reinterpret_cast<uintptr_t>(rounded) % 8 == 0 && aligned16(param) &&
                       aligned16(grad) && aligned16(m) && aligned16(v);
  const int64_t step = int64_t{kThreads} * (vectors ? 4 : 1);
  const auto grid = static_cast<unsigned>((p.count + step - 1) / step);
  const auto run = [&](auto kernel) {
    kernel<<<grid, kThreads, 0, device.stream>>>(given, decided, p.count, param, grad, m, v,
                                                 rounded);
  };
  if (vectors)
    run(adamw_kernel<4>);
  else
    run(adamw_kernel<1>);
  return launched(device, name);
}

}  // namespace
}  // namespace cuda

int32_t sum_of_squares_cuda(cuda::DeviceState& device, const SumOfSquaresParams& p) {
  using namespace cuda;
  const int64_t blocks = square_blocks(p.count);
  auto* partial =
      static_cast<double*>(device.scratch(static_cast<size_t>(blocks + 1) * sizeof(double)));
  if (!partial) return kOutOfMemory;
  const bool known = with_device_type(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch_squares(device, static_cast<const T*>(p.x), p.count, partial);
  });
  if (!known) return unsupported(device, "sum_of_squares: CUDA has float32 and bfloat16");
  sum_partials_kernel<<<1, kThreads, 0, device.stream>>>(partial, blocks, p.out);
  return launched(device, "sum_of_squares");
}

int32_t adamw_cuda(cuda::DeviceState& device, const AdamWParams& p) {
  using namespace cuda;
  if (p.dtype != DType::f32)
    return unsupported(device, "adamw: parameters and states are float32 on CUDA");
  if (p.count == 0) return kSuccess;
  const AdamWConstants constants{p.beta1, p.beta2, p.epsilon, p.weight_decay};
  return launch_adamw(device, p, constants.args(p.learning_rate, p.grad_scale, p.step), nullptr,
                      "adamw");
}

int32_t clipped_adamw_cuda(cuda::DeviceState& device, const ClippedAdamWParams& p) {
  using namespace cuda;
  if (p.dtype != DType::f32)
    return unsupported(device, "clipped_adamw: parameters and states are float32 on CUDA");
  const int64_t blocks = square_blocks(p.count);
  auto* partial = static_cast<double*>(
      device.scratch(static_cast<size_t>(blocks) * sizeof(double) + sizeof(AdamWArgs)));
  if (!partial) return kOutOfMemory;
  auto* args = reinterpret_cast<AdamWArgs*>(partial + blocks);
  launch_squares(device, static_cast<const float*>(p.grad), p.count, partial);
  decide_update_kernel<<<1, kThreads, 0, device.stream>>>(
      {p.beta1, p.beta2, p.epsilon, p.weight_decay}, p.max_norm, partial, blocks,
      static_cast<const float*>(p.loss), static_cast<const float*>(p.nll), p.rates, p.record, args);
  if (p.count == 0) return launched(device, "clipped_adamw");
  return launch_adamw(device, p, {}, args, "clipped_adamw");
}

}  // namespace trafo
