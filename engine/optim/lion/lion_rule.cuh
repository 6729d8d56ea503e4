// Lion for CUDA.
#pragma once

#include "engine/optim/update_kernel.cuh"

namespace trafo {
namespace cuda {
namespace {

struct LionUpdate {
  using Rule = LionRule;
  struct Args {
    float beta1, rest1, beta2, rest2;
  };
  using Gradient = const float;
  static constexpr int kStates = 1;

  static __device__ void update(const Args& a, const ElementRates& rates, float g, float* states,
                                float& value) {
    const float mixed = fmaf(states[0], a.beta1, g * a.rest1);
    const float sign = mixed == 0.0f ? 0.0f : copysignf(1.0f, mixed);
    value = fmaf(-rates.rate, sign, value * rates.decay);
    states[0] = fmaf(states[0], a.beta2, g * a.rest2);
  }

  static __host__ __device__ Args args(const Rule& rule, int64_t /*step*/) {
    return {static_cast<float>(rule.beta1), static_cast<float>(1 - rule.beta1),
            static_cast<float>(rule.beta2), static_cast<float>(1 - rule.beta2)};
  }
  static __host__ __device__ ElementRates rates(const Rule& /*rule*/, const GroupRates& rates,
                                                int64_t /*step*/) {
    return decoupled_rates(rates);
  }
  static void run(const Launch<Args>& launch, const Rule& /*rule*/) { launch.run<LionUpdate>(); }
};

}  // namespace
}  // namespace cuda
}  // namespace trafo
