// SGD in vectors, compiled once a target.
#if defined(TRAFO_SGD_RULE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAFO_SGD_RULE_INL_H_
#undef TRAFO_SGD_RULE_INL_H_
#else
#define TRAFO_SGD_RULE_INL_H_
#endif

#include "engine/optim/update_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {
namespace {

// The constants of an update in every lane, for elements of one group.
template <class D>
class SgdLanes {
  using V = hn::Vec<D>;
  using T = hn::TFromD<D>;

 public:
  SgdLanes(D d, const SgdRule& rule, const GroupRates& rates)
      : momentum_(hn::Set(d, static_cast<T>(rule.momentum))),
        rate_(hn::Set(d, static_cast<T>(rates.learning_rate))),
        decay_(hn::Set(d, static_cast<T>(rates.weight_decay))),
        nesterov_(rule.nesterov) {}

  HWY_INLINE void operator()(V g, V& value) const {
    value = hn::NegMulAdd(rate_, hn::MulAdd(decay_, value, g), value);
  }
  HWY_INLINE void operator()(V g, V& velocity, V& value) const {
    const V d = hn::MulAdd(decay_, value, g);
    velocity = hn::MulAdd(momentum_, velocity, d);
    value = hn::NegMulAdd(rate_, nesterov_ ? hn::MulAdd(momentum_, velocity, d) : velocity, value);
  }

 private:
  V momentum_, rate_, decay_;
  bool nesterov_;
};

template <class T>
void sgd_update(const UpdateParams& p, int64_t begin, int64_t end) {
  const auto make = [&](const GroupRates& rates) {
    return SgdLanes(hn::ScalableTag<T>(), p.state.rules.sgd, rates);
  };
  if (p.state.states[0])
    update_groups<T, 1>(p, begin, end, make);
  else
    update_groups<T, 0>(p, begin, end, make);
}

}  // namespace
}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
