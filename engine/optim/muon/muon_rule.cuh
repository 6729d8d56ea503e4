// The first half of Muon for CUDA.
#pragma once

#include "engine/optim/adamw/adamw_element.cuh"

namespace trafo {
namespace cuda {
namespace {

// Elements outside of matrices are AdamW's; the kernel chooses.
struct MuonUpdate {
  using Rule = MuonRule;
  struct Args {
    AdamWArgs adamw;
    float momentum, rest;
    bool nesterov;
  };
  using Gradient = float;
  static constexpr int kStates = AdamWElement::kStates;

  static __device__ void update(const Args& a, const ElementRates& rates, float g, float* states,
                                float& value) {
    AdamWElement::update(a.adamw, rates, g, states, value);
  }
  // The new gradient of an element of a matrix.
  static __device__ float direction(const Args& a, float g, float* states) {
    g *= a.rest;
    states[0] = fmaf(a.momentum, states[0], g);
    return a.nesterov ? fmaf(a.momentum, states[0], g) : states[0];
  }

  static __host__ __device__ Args args(const Rule& rule, int64_t step) {
    return {adamw_args(rule.adamw, step), static_cast<float>(rule.momentum),
            static_cast<float>(1 - rule.momentum), rule.nesterov};
  }
  static __host__ __device__ ElementRates rates(const Rule& rule, const GroupRates& rates,
                                                int64_t step) {
    return adamw_rates(rule.adamw, rates, step);
  }
  static void run(const Launch<Args>& launch, const Rule& /*rule*/) { launch.run<MuonUpdate>(); }
};

}  // namespace
}  // namespace cuda
}  // namespace trafo
