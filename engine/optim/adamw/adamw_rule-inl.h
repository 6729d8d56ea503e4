// AdamW in vectors, compiled once a target.
#if defined(TRAFO_ADAMW_RULE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAFO_ADAMW_RULE_INL_H_
#undef TRAFO_ADAMW_RULE_INL_H_
#else
#define TRAFO_ADAMW_RULE_INL_H_
#endif

#include <type_traits>

#include "engine/optim/adamw/adamw_8bit-inl.h"
#include "engine/optim/adamw/adamw_lanes-inl.h"
#include "engine/optim/update_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {
namespace {

template <class T>
void adamw_update(const UpdateParams& p, int64_t begin, int64_t end) {
  const AdamWRule& rule = p.state.rules.adamw;
  if constexpr (std::is_same_v<T, float>)
    if (rule.eight_bit) return adamw_8bit_update(p, rule, begin, end);
  update_groups<T, 2>(p, begin, end, [&](const GroupRates& rates) {
    return AdamWLanes(hn::ScalableTag<T>(), rule, rates, p.step);
  });
}

}  // namespace
}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
