// The kernel that updates parameters by a rule, in one launch. Each optimizer has a type
// NAMEUpdate in NAME/NAME_rule.cuh with
//   Args         the constants of an update, in float
//   args()       computes them
//   rates()      computes the rates of a group
//   run()        launches the kernel; `launch.run<Element>()` where update_kernel serves
// and one or more types of elements with
//   Args, Gradient, kStates
//   update()     the formula, for one element
//   direction()  where Gradient is not const: of elements of whole matrices
// NAMEUpdate may be the type of its elements as well.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "engine/backend/cuda/device/numeric.cuh"
#include "engine/backend/cuda/device_state.h"
#include "engine/optim/update.h"

namespace trafo {
namespace cuda {
namespace {

constexpr int kThreads = 256;

// The sum over the block, in thread 0; always in the same order.
__device__ inline double block_sum(double x) {
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

// The rates of elements of one group, as their rule defines them.
struct ElementRates {
  float rate, decay;
};

// A parameter p becomes decay p - rate direction.
__host__ __device__ inline ElementRates decoupled_rates(const GroupRates& rates) {
  return {static_cast<float>(rates.learning_rate),
          static_cast<float>(1 - rates.learning_rate * rates.weight_decay)};
}

// The constants of one update.
template <class Args>
struct UpdateArgs {
  Args rule;
  float grad_scale, ema_weight;
  ElementRates rates;  // of parameters with factors of 1
  uint32_t step;
  bool applied;

  __device__ float new_ema(float ema, float value) const {
    return fmaf(ema_weight, value - ema, ema);
  }
};

// The constants of all updates.
template <class Update>
struct UpdateConstants {
  typename Update::Rule rule;
  double weight_decay, ema_alpha;

  __host__ __device__ ElementRates rates(double learning_rate, int64_t step,
                                         const UpdateFactors& factors) const {
    return Update::rates(rule, group_rates(learning_rate, weight_decay, factors), step);
  }
  __host__ __device__ UpdateArgs<typename Update::Args> args(double learning_rate,
                                                             double grad_scale,
                                                             int64_t step) const {
    UpdateArgs<typename Update::Args> a;
    a.rule = Update::args(rule, step);
    a.grad_scale = static_cast<float>(grad_scale);
    a.ema_weight = static_cast<float>(trafo::ema_weight(ema_alpha, step));
    a.rates = rates(learning_rate, step, {});
    a.step = static_cast<uint32_t>(step);
    a.applied = true;
    return a;
  }
};

// The groups of an update: a table of indices, and their rates.
struct Groups {
  const uint8_t* group_of;  // one for every kGroupElements elements
  const ElementRates* rates;
  const UpdateFactors* factors;

  __device__ ElementRates at(int64_t element) const {
    return rates[group_of[element / kGroupElements]];
  }
  __device__ bool in_whole_matrix(int64_t element) const {
    return factors[group_of[element / kGroupElements]].whole_matrix != 0;
  }
};

// The arrays of a rule that has fewer states are null.
struct StatePointers {
  float* of[2];
};

// The steps after a rule: EMA and bfloat16 copy of W new parameters.
template <int W, class Args>
__device__ void post_update(const UpdateArgs<Args>& a, const Pack<float, W>& value,
                            bf16* __restrict__ rounded, float* __restrict__ ema, int64_t i) {
  if (ema) {
    Pack<float, W> average = load_pack<float, W>(ema + i);
#pragma unroll
    for (int j = 0; j < W; ++j) average.v[j] = a.new_ema(average.v[j], value.v[j]);
    store_pack(ema + i, average);
  }
  if (rounded) {
    Pack<bf16, W> narrow;
#pragma unroll
    for (int j = 0; j < W; ++j) narrow.v[j] = from_float<bf16>(value.v[j]);
    store_pack(rounded + i, narrow);
  }
}

// `decided`: arguments that a kernel left in device memory, instead of `given`. kGrouped: elements
// have the rates of their group.
template <class Element, int W, bool kGrouped>
__global__ void __launch_bounds__(kThreads)
    update_kernel(UpdateArgs<typename Element::Args> given,
                  const UpdateArgs<typename Element::Args>* __restrict__ decided, Groups groups,
                  int64_t count, float* __restrict__ param,
                  typename Element::Gradient* __restrict__ grad, StatePointers states,
                  bf16* __restrict__ rounded, float* __restrict__ ema) {
  static_assert(kGroupElements % W == 0);
  constexpr int kStates = Element::kStates;
  // The rule has elements of whole matrices.
  constexpr bool kDirections = kGrouped && !std::is_const_v<typename Element::Gradient>;
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * W;
  if (i >= count) return;
  const UpdateArgs<typename Element::Args> a = decided ? *decided : given;
  if (!a.applied) return;
  ElementRates rates = a.rates;
  if constexpr (kGrouped) rates = groups.at(i);
  bool direction = false;
  if constexpr (kDirections) direction = groups.in_whole_matrix(i);
  if (i + W <= count) {
    Pack<float, W> g = load_pack<float, W>(grad + i);
    Pack<float, W> loaded[kStates > 0 ? kStates : 1];
#pragma unroll
    for (int k = 0; k < kStates; ++k) loaded[k] = load_pack<float, W>(states.of[k] + i);
    Pack<float, W> value = load_pack<float, W>(param + i);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      float state[kStates > 0 ? kStates : 1];
#pragma unroll
      for (int k = 0; k < kStates; ++k) state[k] = loaded[k].v[j];
      if constexpr (kDirections)
        if (direction) g.v[j] = Element::direction(a.rule, g.v[j] * a.grad_scale, state);
      if (!direction) Element::update(a.rule, rates, g.v[j] * a.grad_scale, state, value.v[j]);
#pragma unroll
      for (int k = 0; k < kStates; ++k) loaded[k].v[j] = state[k];
    }
#pragma unroll
    for (int k = 0; k < kStates; ++k) store_pack(states.of[k] + i, loaded[k]);
    if constexpr (kDirections)
      if (direction) {
        store_pack(grad + i, g);
        return;
      }
    store_pack(param + i, value);
    post_update<W>(a, value, rounded, ema, i);
  } else {
    for (int64_t j = i; j < count; ++j) {
      float state[kStates > 0 ? kStates : 1];
      for (int k = 0; k < kStates; ++k) state[k] = states.of[k][j];
      if constexpr (kDirections)
        if (direction) grad[j] = Element::direction(a.rule, grad[j] * a.grad_scale, state);
      if (!direction) Element::update(a.rule, rates, grad[j] * a.grad_scale, state, param[j]);
      for (int k = 0; k < kStates; ++k) states.of[k][j] = state[k];
      if (direction) continue;
      if (ema) ema[j] = a.new_ema(ema[j], param[j]);
      if (rounded) rounded[j] = from_float<bf16>(param[j]);
    }
  }
}

// An update that is about to be launched, with `decided` or else `given`.
template <class Args>
struct Launch {
  DeviceState& device;
  const UpdateState& s;
  const UpdateArgs<Args>& given;
  const UpdateArgs<Args>* decided;
  Groups groups;

  float* param() const { return static_cast<float*>(s.param); }
  float* grad() const { return static_cast<float*>(s.grad); }
  bf16* rounded() const { return static_cast<bf16*>(s.post.param_bf16); }
  float* ema() const { return static_cast<float*>(s.post.ema); }
  bool aligned() const {
    return reinterpret_cast<uintptr_t>(rounded()) % 8 == 0 && aligned16(param()) &&
           aligned16(grad()) && aligned16(ema());
  }
  unsigned grid(int64_t elements) const {  // of a block of threads
    return static_cast<unsigned>((s.count + elements - 1) / elements);
  }

  // update_kernel, with groups if there is a table.
  template <class Element>
  void run() const {
    if (groups.group_of)
      run<Element, true>();
    else
      run<Element, false>();
  }

 private:
  template <class Element, bool kGrouped>
  void run() const {
    static_assert(Element::kStates <= 2);
    StatePointers states{};
    for (int k = 0; k < Element::kStates; ++k) states.of[k] = static_cast<float*>(s.states[k]);
    const bool vectors = aligned() && aligned16(states.of[0]) && aligned16(states.of[1]);
    const auto kernel =
        vectors ? update_kernel<Element, 4, kGrouped> : update_kernel<Element, 1, kGrouped>;
    kernel<<<grid(int64_t{kThreads} * (vectors ? 4 : 1)), kThreads, 0, device.stream>>>(
        given, decided, groups, s.count, param(), grad(), states, rounded(), ema());
  }
};

}  // namespace
}  // namespace cuda
}  // namespace trafo
