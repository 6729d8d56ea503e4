// The first half of Muon in vectors, compiled once a target.
#if defined(TRAFO_MUON_RULE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAFO_MUON_RULE_INL_H_
#undef TRAFO_MUON_RULE_INL_H_
#else
#define TRAFO_MUON_RULE_INL_H_
#endif

#include "engine/optim/adamw/adamw_lanes-inl.h"
#include "engine/optim/update_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {
namespace {

// The momentum of matrices. `out` is the direction of the update.
template <class D>
class MuonLanes {
  using V = hn::Vec<D>;
  using T = hn::TFromD<D>;

 public:
  MuonLanes(D d, const MuonRule& rule, double grad_scale)
      : grad_scale_(hn::Set(d, static_cast<T>(grad_scale))),
        momentum_(hn::Set(d, static_cast<T>(rule.momentum))),
        rest_(hn::Set(d, static_cast<T>(1 - rule.momentum))),
        nesterov_(rule.nesterov) {}

  HWY_INLINE void operator()(V g, V& momentum, V& out) const {
    g = hn::Mul(rest_, hn::Mul(g, grad_scale_));
    momentum = hn::MulAdd(momentum_, momentum, g);
    out = nesterov_ ? hn::MulAdd(momentum_, momentum, g) : momentum;
  }

 private:
  V grad_scale_, momentum_, rest_;
  bool nesterov_;
};

template <class T>
void muon_update(const UpdateParams& p, int64_t begin, int64_t end) {
  const UpdateState& s = p.state;
  const MuonRule& rule = s.rules.muon;
  const hn::ScalableTag<T> d;
  for_each_group(s, begin, end, [&](int64_t first, int64_t past, const UpdateFactors& factors) {
    if (factors.whole_matrix) {
      T* grad = static_cast<T*>(s.grad);
      update_lanes(first, past, static_cast<const T*>(grad), MuonLanes(d, rule, p.grad_scale),
                   static_cast<T*>(s.states[0]), grad);
      return;
    }
    const GroupRates rates = group_rates(p.learning_rate, s.weight_decay, factors);
    update_range<T, 2>(p, first, past, AdamWLanes(d, rule.adamw, rates, p.step));
    post_update<T>(s, p.step, first, past);
  });
}

}  // namespace
}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
