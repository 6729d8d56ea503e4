// The first half of Adafactor for CUDA.
#pragma once

#include "engine/optim/update_kernel.cuh"

namespace trafo {
namespace cuda {
namespace {

__global__ void __launch_bounds__(kThreads)
    scale_gradient_kernel(float given, bool given_applied, const float* __restrict__ decided,
                          const bool* __restrict__ decided_applied, int64_t count,
                          float* __restrict__ grad) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= count || !(decided_applied ? *decided_applied : given_applied)) return;
  grad[i] *= decided ? *decided : given;
}

struct AdafactorUpdate {
  using Rule = AdafactorRule;
  struct Args {};

  static __host__ __device__ Args args(const Rule& /*rule*/, int64_t /*step*/) { return {}; }
  static __host__ __device__ ElementRates rates(const Rule& /*rule*/, const GroupRates& rates,
                                                int64_t /*step*/) {
    return decoupled_rates(rates);
  }
  static void run(const Launch<Args>& launch, const Rule& /*rule*/) {
    const UpdateArgs<Args>* decided = launch.decided;
    scale_gradient_kernel<<<launch.grid(kThreads), kThreads, 0, launch.device.stream>>>(
        launch.given.grad_scale, launch.given.applied, decided ? &decided->grad_scale : nullptr,
        decided ? &decided->applied : nullptr, launch.s.count, launch.grad());
  }
};

}  // namespace
}  // namespace cuda
}  // namespace trafo
