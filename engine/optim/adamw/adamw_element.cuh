// The formula of AdamW for CUDA, for one element.
#pragma once

#include "engine/optim/update_kernel.cuh"

namespace trafo {
namespace cuda {
namespace {

// The constants of an update.
struct AdamWArgs {
  float beta1, rest1, beta2, rest2, correction2, epsilon;
};

struct AdamWElement {
  using Args = AdamWArgs;
  using Gradient = const float;
  static constexpr int kStates = 2;
  static __device__ void update(const AdamWArgs& a, const ElementRates& rates, float g,
                                float* states, float& value) {
    states[0] = fmaf(states[0], a.beta1, g * a.rest1);
    states[1] = fmaf(states[1], a.beta2, g * g * a.rest2);
    const float denominator = sqrtf(states[1] * a.correction2) + a.epsilon;
    value = fmaf(-rates.rate, states[0] / denominator, value * rates.decay);
  }
};

// 1 - beta^step without cancellation for beta near one; 1 for beta = 0.
__host__ __device__ inline double bias_correction(double beta, int64_t step) {
  return beta > 0 ? -expm1(static_cast<double>(step) * log(beta)) : 1.0;
}

__host__ __device__ inline AdamWArgs adamw_args(const AdamWRule& rule, int64_t step) {
  return {static_cast<float>(rule.beta1),
          static_cast<float>(1 - rule.beta1),
          static_cast<float>(rule.beta2),
          static_cast<float>(1 - rule.beta2),
          static_cast<float>(1 / bias_correction(rule.beta2, step)),
          static_cast<float>(rule.epsilon)};
}

__host__ __device__ inline ElementRates adamw_rates(const AdamWRule& rule, const GroupRates& rates,
                                                    int64_t step) {
  return {static_cast<float>(rates.learning_rate / bias_correction(rule.beta1, step)),
          static_cast<float>(1 - rates.learning_rate * rates.weight_decay)};
}

}  // namespace
}  // namespace cuda
}  // namespace trafo
