// The loops around the rules of optimizers in vectors, compiled once a target. See simd.h for how a
// kernel file includes this.
#if defined(TRAFO_UPDATE_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAFO_UPDATE_LANES_INL_H_
#undef TRAFO_UPDATE_LANES_INL_H_
#else
#define TRAFO_UPDATE_LANES_INL_H_
#endif

#include <algorithm>
#include <utility>

#include "engine/optim/update.h"

#include "engine/backend/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {
namespace {

// Calls run(begin, end, factors) for each longest range of elements of one group.
template <class Run>
void for_each_group(const UpdateState& s, int64_t begin, int64_t end, Run run) {
  if (!s.group_of) return run(begin, end, UpdateFactors{});
  while (begin < end) {
    const uint8_t group = s.group_of[begin / kGroupElements];
    int64_t past = begin / kGroupElements + 1;
    while (past * kGroupElements < end && s.group_of[past] == group) ++past;
    past = std::min(past * kGroupElements, end);
    run(begin, past, s.factors[group]);
    begin = past;
  }
}

// Calls apply(g, values...) with the lanes of elements [begin, end) of `grad` and of each array,
// and stores what it leaves in `values`.
template <class T, class Apply, class... Arrays>
void update_lanes(int64_t begin, int64_t end, const T* grad, const Apply& apply,
                  Arrays*... arrays) {
  const hn::ScalableTag<T> d;
  int64_t i = begin;
  const auto whole = [&](auto... values) {
    apply(hn::LoadU(d, grad + i), values...);
    (hn::StoreU(values, d, arrays + i), ...);
  };
  for (; i + lanes(d) <= end; i += lanes(d)) whole(hn::LoadU(d, arrays + i)...);
  if (i == end) return;
  const int64_t rest = end - i;
  const auto part = [&](auto... values) {
    apply(load_n(d, grad + i, rest), values...);
    (store_n(values, d, arrays + i, rest), ...);
  };
  part(load_n(d, arrays + i, rest)...);
}

// Calls rule(g, states..., p) with the scaled gradient, the first kStates states and the parameters
// of elements [begin, end), and stores what it leaves in states and parameters.
template <class T, int kStates, class Rule>
void update_range(const UpdateParams& p, int64_t begin, int64_t end, const Rule& rule) {
  const UpdateState& s = p.state;
  const auto scale = hn::Set(hn::ScalableTag<T>(), static_cast<T>(p.grad_scale));
  const auto apply = [&](auto g, auto&... values) { rule(hn::Mul(g, scale), values...); };
  const auto with_states = [&]<size_t... k>(std::index_sequence<k...>) {
    update_lanes(begin, end, static_cast<const T*>(s.grad), apply, static_cast<T*>(s.states[k])...,
                 static_cast<T*>(s.param));
  };
  with_states(std::make_index_sequence<static_cast<size_t>(kStates)>());
}

// --- steps after the rule ---

template <class T>
void round_parameters(const UpdateState& p, int64_t begin, int64_t end) {
  const T* param = static_cast<const T*>(p.param);
  BFloat16* rounded = static_cast<BFloat16*>(p.post.param_bf16);
  if (!rounded) return;
  for (int64_t i = begin; i < end; ++i)
    rounded[i] = BFloat16::from_float(static_cast<float>(param[i]));
}

template <class T>
void update_ema(const UpdateState& p, int64_t step, int64_t begin, int64_t end) {
  T* ema = static_cast<T*>(p.post.ema);
  const T* param = static_cast<const T*>(p.param);
  if (!ema) return;
  const hn::ScalableTag<T> d;
  const auto share = hn::Set(d, static_cast<T>(ema_weight(p.post.ema_alpha, step)));
  const auto mix = [&](auto old, auto value) {
    return hn::MulAdd(share, hn::Sub(value, old), old);
  };
  int64_t i = begin;
  for (; i + lanes(d) <= end; i += lanes(d))
    hn::StoreU(mix(hn::LoadU(d, ema + i), hn::LoadU(d, param + i)), d, ema + i);
  if (i < end)
    store_n(mix(load_n(d, ema + i, end - i), load_n(d, param + i, end - i)), d, ema + i, end - i);
}

template <class T>
void post_update(const UpdateState& s, int64_t step, int64_t begin, int64_t end) {
  round_parameters<T>(s, begin, end);
  update_ema<T>(s, step, begin, end);
}

// Updates elements [begin, end). make(GroupRates) returns the rule of a group for update_range.
template <class T, int kStates, class Make>
void update_groups(const UpdateParams& p, int64_t begin, int64_t end, const Make& make) {
  const UpdateState& s = p.state;
  for_each_group(s, begin, end, [&](int64_t first, int64_t past, const UpdateFactors& factors) {
    update_range<T, kStates>(p, first, past,
                             make(group_rates(p.learning_rate, s.weight_decay, factors)));
    post_update<T>(s, p.step, first, past);
  });
}

}  // namespace
}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
