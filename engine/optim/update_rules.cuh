// Update rules for CUDA, element by element.
#pragma once

#include <cmath>
#include <cstdint>

#include "engine/optim/update.h"

namespace trafo {
namespace cuda {
namespace {

// The constants that depend on the factors of a group. `rate` is the learning rate, of AdamW
// corrected; `decay` is what the parameter is multiplied with: 1 - lr decay, of SGD the weight
// decay that is added to the gradient.
struct GroupRate {
  float rate, decay;
};

// The constants of one update.
struct UpdateArgs {
  float grad_scale, ema_weight;
  float beta1, rest1, beta2, rest2, correction2, epsilon;  // AdamW
  float momentum, rest;                                    // SGD, Muon
  GroupRate group;                                         // of parameters with factors of 1
  uint32_t step;
  bool nesterov, applied;

  __device__ float new_ema(float ema, float value) const {
    return fmaf(ema_weight, value - ema, ema);
  }
};

// The rules, element by element, with the number of their states.
struct AdamWElement {
  using Gradient = const float;
  static constexpr int kStates = 2;
  static __device__ void update(const UpdateArgs& a, const GroupRate& rates, float gradient,
                                float* states, float& value) {
    const float g = gradient * a.grad_scale;
    states[0] = fmaf(states[0], a.beta1, g * a.rest1);
    states[1] = fmaf(states[1], a.beta2, g * g * a.rest2);
    const float denominator = sqrtf(states[1] * a.correction2) + a.epsilon;
    value = fmaf(-rates.rate, states[0] / denominator, value * rates.decay);
  }
};

template <int N>
struct SgdElement {
  using Gradient = const float;
  static constexpr int kStates = N;  // 0: without momentum
  static __device__ void update(const UpdateArgs& a, const GroupRate& rates, float gradient,
                                float* states, float& value) {
    float d = fmaf(rates.decay, value, gradient * a.grad_scale);
    if constexpr (N == 1) {
      states[0] = fmaf(a.momentum, states[0], d);
      d = a.nesterov ? fmaf(a.momentum, states[0], d) : states[0];
    }
    value = fmaf(-rates.rate, d, value);
  }
};

// Elements outside of matrices are AdamW's; update_kernel chooses.
struct MuonElement : AdamWElement {
  using Gradient = float;
  static __device__ void direction(const UpdateArgs& a, float& gradient, float* states) {
    const float g = a.rest * (gradient * a.grad_scale);
    states[0] = fmaf(a.momentum, states[0], g);
    gradient = a.nesterov ? fmaf(a.momentum, states[0], g) : states[0];
  }
};

// apply_direction: the gradient is the direction.
struct DirectionElement {
  using Gradient = const float;
  static constexpr int kStates = 0;
  static __device__ void update(const UpdateArgs& /*a*/, const GroupRate& rates, float gradient,
                                float* /*states*/, float& value) {
    value = fmaf(-rates.rate, gradient, value * rates.decay);
  }
};

// 1 - beta^step without cancellation for beta near one; 1 for beta = 0.
__host__ __device__ double bias_correction(double beta, int64_t step) {
  return beta > 0 ? -expm1(static_cast<double>(step) * log(beta)) : 1.0;
}

struct UpdateConstants {
  UpdateRule rule;
  bool nesterov;
  double beta1, beta2, epsilon, momentum, weight_decay, ema_alpha;

  __host__ __device__ GroupRate rate(double learning_rate, int64_t step,
                                     const UpdateFactors& factors) const {
    learning_rate *= factors.learning_rate;
    if (rule == UpdateRule::sgd)
      return {static_cast<float>(learning_rate),
              static_cast<float>(weight_decay * factors.weight_decay)};
    return {static_cast<float>(learning_rate / bias_correction(beta1, step)),
            static_cast<float>(1 - learning_rate * (weight_decay * factors.weight_decay))};
  }
  __host__ __device__ UpdateArgs args(double learning_rate, double grad_scale, int64_t step) const {
    UpdateArgs a;
    a.grad_scale = static_cast<float>(grad_scale);
    a.beta1 = static_cast<float>(beta1);
    a.rest1 = static_cast<float>(1 - beta1);
    a.beta2 = static_cast<float>(beta2);
    a.rest2 = static_cast<float>(1 - beta2);
    a.correction2 = static_cast<float>(1 / bias_correction(beta2, step));
    a.epsilon = static_cast<float>(epsilon);
    a.momentum = static_cast<float>(momentum);
    a.rest = static_cast<float>(1 - momentum);
    a.nesterov = nesterov;
    a.group = rate(learning_rate, step, {});
    a.ema_weight = static_cast<float>(trafo::ema_weight(ema_alpha, step));
    a.step = static_cast<uint32_t>(step);
    a.applied = true;
    return a;
  }
};

UpdateConstants constants_of(const UpdateState& s) {
  const bool sgd = s.rule == UpdateRule::sgd;
  return {
      s.rule,          sgd ? s.sgd.nesterov : s.muon.nesterov, s.adamw.beta1,  s.adamw.beta2,
      s.adamw.epsilon, sgd ? s.sgd.momentum : s.muon.momentum, s.weight_decay, s.post.ema_alpha};
}

}  // namespace
}  // namespace cuda
}  // namespace trafo
