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
};

template <int W>
__global__ void __launch_bounds__(kThreads)
    adamw_kernel(AdamWArgs a, int64_t count, float* __restrict__ param,
                 const float* __restrict__ grad, float* __restrict__ m, float* __restrict__ v,
                 bf16* __restrict__ rounded) {
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * W;
  if (i >= count) return;
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

// 1 - beta^step without cancellation for beta near one; 1 for beta = 0.
double bias_correction(double beta, int64_t step) {
  return beta > 0 ? -std::expm1(static_cast<double>(step) * std::log(beta)) : 1.0;
}

}  // namespace
}  // namespace cuda

int32_t sum_of_squares_cuda(cuda::DeviceState& device, const SumOfSquaresParams& p) {
  using namespace cuda;
  const int64_t blocks = (p.count + kBlockElements - 1) / kBlockElements;
  auto* partial =
      static_cast<double*>(device.scratch(static_cast<size_t>(blocks + 1) * sizeof(double)));
  if (!partial) return kOutOfMemory;
  const bool known = with_device_type(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* x = static_cast<const T*>(p.x);
    if (blocks == 0) return;
    const auto grid = static_cast<unsigned>(blocks);
    if (aligned16(x))
      sum_of_squares_kernel<T, kPackWidth<T>>
          <<<grid, kThreads, 0, device.stream>>>(x, p.count, partial);
    else
      sum_of_squares_kernel<T, 1><<<grid, kThreads, 0, device.stream>>>(x, p.count, partial);
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
  AdamWArgs a;
  a.grad_scale = static_cast<float>(p.grad_scale);
  a.beta1 = static_cast<float>(p.beta1);
  a.rest1 = static_cast<float>(1 - p.beta1);
  a.beta2 = static_cast<float>(p.beta2);
  a.rest2 = static_cast<float>(1 - p.beta2);
  a.correction2 = static_cast<float>(1 / bias_correction(p.beta2, p.step));
  a.epsilon = static_cast<float>(p.epsilon);
  a.rate = static_cast<float>(p.learning_rate / bias_correction(p.beta1, p.step));
  a.keep = static_cast<float>(1 - p.learning_rate * p.weight_decay);
  auto* param = static_cast<float*>(p.param);
  const auto* grad = static_cast<const float*>(p.grad);
  auto* m = static_cast<float*>(p.m);
  auto* v = static_cast<float*>(p.v);
  auto* rounded = static_cast<bf16*>(p.param_bf16);
  const bool vectors = reinterpret_cast<uintptr_t>(rounded) % 8 == 0 && aligned16(param) &&
                       aligned16(grad) && aligned16(m) && aligned16(v);
  const int64_t step = int64_t{kThreads} * (vectors ? 4 : 1);
  const auto grid = static_cast<unsigned>((p.count + step - 1) / step);
  if (vectors)
    adamw_kernel<4><<<grid, kThreads, 0, device.stream>>>(a, p.count, param, grad, m, v, rounded);
  else
    adamw_kernel<1><<<grid, kThreads, 0, device.stream>>>(a, p.count, param, grad, m, v, rounded);
  return launched(device, "adamw");
}

}  // namespace trafo
