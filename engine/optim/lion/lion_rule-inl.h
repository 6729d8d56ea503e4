// Lion in vectors, compiled once a target.
#if defined(TRAFO_LION_RULE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAFO_LION_RULE_INL_H_
#undef TRAFO_LION_RULE_INL_H_
#else
#define TRAFO_LION_RULE_INL_H_
#endif

#include "engine/optim/update_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {
namespace {

// The constants of an update in every lane, for elements of one group.
template <class D>
class LionLanes {
  using V = hn::Vec<D>;
  using T = hn::TFromD<D>;

 public:
  LionLanes(D d, const LionRule& rule, const GroupRates& rates)
      : beta1_(set(d, rule.beta1)),
        beta2_(set(d, rule.beta2)),
        rest1_(set(d, 1 - rule.beta1)),
        rest2_(set(d, 1 - rule.beta2)),
        rate_(set(d, rates.learning_rate)),
        keep_(set(d, 1 - rates.learning_rate * rates.weight_decay)) {}

  HWY_INLINE void operator()(V g, V& momentum, V& value) const {
    const D d;
    const V mixed = hn::MulAdd(momentum, beta1_, hn::Mul(g, rest1_));
    const V sign = hn::IfThenZeroElse(hn::Eq(mixed, hn::Zero(d)),
                                      hn::CopySign(hn::Set(d, static_cast<T>(1)), mixed));
    value = hn::NegMulAdd(rate_, sign, hn::Mul(value, keep_));
    momentum = hn::MulAdd(momentum, beta2_, hn::Mul(g, rest2_));
  }

 private:
  static V set(D d, double x) { return hn::Set(d, static_cast<T>(x)); }

  V beta1_, beta2_, rest1_, rest2_, rate_, keep_;
};

template <class T>
void lion_update(const UpdateParams& p, int64_t begin, int64_t end) {
  update_groups<T, 1>(p, begin, end, [&](const GroupRates& rates) {
    return LionLanes(hn::ScalableTag<T>(), p.state.rules.lion, rates);
  });
}

}  // namespace
}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
