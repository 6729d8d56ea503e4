// SGD for CUDA.
#pragma once

#include "engine/optim/update_kernel.cuh"

namespace trafo {
namespace cuda {
namespace {

struct SgdArgs {
  float momentum;
  bool nesterov;
};

template <int N>
struct SgdElement {
  using Args = SgdArgs;
  using Gradient = const float;
  static constexpr int kStates = N;  // 0: without momentum
  static __device__ void update(const SgdArgs& a, const ElementRates& rates, float g, float* states,
                                float& value) {
    float d = fmaf(rates.decay, value, g);
    if constexpr (N == 1) {
      states[0] = fmaf(a.momentum, states[0], d);
      d = a.nesterov ? fmaf(a.momentum, states[0], d) : states[0];
    }
    value = fmaf(-rates.rate, d, value);
  }
};

struct SgdUpdate {
  using Rule = SgdRule;
  using Args = SgdArgs;
  static __host__ __device__ Args args(const Rule& rule, int64_t /*step*/) {
    return {static_cast<float>(rule.momentum), rule.nesterov};
  }
  // `decay` is the weight decay that is added to the gradient.
  static __host__ __device__ ElementRates rates(const Rule& /*rule*/, const GroupRates& rates,
                                                int64_t /*step*/) {
    return {static_cast<float>(rates.learning_rate), static_cast<float>(rates.weight_decay)};
  }
  static void run(const Launch<Args>& launch, const Rule& /*rule*/) {
    if (launch.s.states[0])
      launch.run<SgdElement<1>>();
    else
      launch.run<SgdElement<0>>();
  }
};

}  // namespace
}  // namespace cuda
}  // namespace trafo
