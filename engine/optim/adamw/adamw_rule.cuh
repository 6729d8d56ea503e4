// AdamW for CUDA.
#pragma once

#include "engine/optim/adamw/adamw_8bit.cuh"
#include "engine/optim/adamw/adamw_element.cuh"

namespace trafo {
namespace cuda {
namespace {

struct AdamWUpdate {
  using Rule = AdamWRule;
  using Args = AdamWArgs;
  static __host__ __device__ Args args(const Rule& rule, int64_t step) {
    return adamw_args(rule, step);
  }
  static __host__ __device__ ElementRates rates(const Rule& rule, const GroupRates& rates,
                                                int64_t step) {
    return adamw_rates(rule, rates, step);
  }
  static void run(const Launch<Args>& launch, const Rule& rule) {
    if (!rule.eight_bit)
      launch.run<AdamWElement>();
    else if (launch.groups.group_of)
      launch_adamw_8bit<true>(launch);
    else
      launch_adamw_8bit<false>(launch);
  }
};

}  // namespace
}  // namespace cuda
}  // namespace trafo
