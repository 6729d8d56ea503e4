// The formula of AdamW in vectors, compiled once a target.
#if defined(TRAFO_ADAMW_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAFO_ADAMW_LANES_INL_H_
#undef TRAFO_ADAMW_LANES_INL_H_
#else
#define TRAFO_ADAMW_LANES_INL_H_
#endif

#include <cmath>

#include "engine/core/numeric/portable_math.h"
#include "engine/core/numeric/portable_power.h"
#include "engine/optim/update.h"

#include "engine/backend/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {
namespace {

// 1 - beta^step without cancellation for beta near one; 1 for beta = 0.
double bias_correction(double beta, int64_t step) {
  return beta > 0 ? -portable_expm1(static_cast<double>(step) * portable_log(beta)) : 1.0;
}

// The constants of AdamW that depend on the rates of a group: p = keep p - rate m / (sqrt(v c) +
// e).
template <class T>
struct AdamWRates {
  T rate, keep;

  AdamWRates(const AdamWRule& rule, const GroupRates& rates, int64_t step)
      : rate(static_cast<T>(rates.learning_rate * (1 / bias_correction(rule.beta1, step)))),
        keep(static_cast<T>(1 - rates.learning_rate * rates.weight_decay)) {}
};

// The constants of an update in every lane, for elements of one group.
template <class D>
class AdamWLanes {
  using V = hn::Vec<D>;
  using T = hn::TFromD<D>;

 public:
  AdamWLanes(D d, const AdamWRule& rule, const GroupRates& rates, int64_t step)
      : beta1_(set(d, rule.beta1)),
        beta2_(set(d, rule.beta2)),
        rest1_(set(d, 1 - rule.beta1)),
        rest2_(set(d, 1 - rule.beta2)),
        correction2_(set(d, 1 / bias_correction(rule.beta2, step))),
        epsilon_(set(d, rule.epsilon)) {
    const AdamWRates<T> group(rule, rates, step);
    rate_ = hn::Set(d, group.rate);
    keep_ = hn::Set(d, group.keep);
  }

  HWY_INLINE void operator()(V g, V& momentum, V& variance, V& value) const {
    (*this)(g, momentum, variance, value, rate_, keep_);
  }
  // With the rates of each lane.
  HWY_INLINE void operator()(V g, V& momentum, V& variance, V& value, V rate, V keep) const {
    momentum = hn::MulAdd(momentum, beta1_, hn::Mul(g, rest1_));
    variance = hn::MulAdd(variance, beta2_, hn::Mul(hn::Mul(g, g), rest2_));
    const V denominator = hn::Add(hn::Sqrt(hn::Mul(variance, correction2_)), epsilon_);
    value = hn::NegMulAdd(rate, hn::Div(momentum, denominator), hn::Mul(value, keep));
  }

 private:
  static V set(D d, double x) { return hn::Set(d, static_cast<T>(x)); }

  V beta1_, beta2_, rest1_, rest2_;
  V correction2_;  // sqrt(v c) + e in one: the correction of v goes under the root
  V epsilon_, rate_, keep_;
};

}  // namespace
}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
