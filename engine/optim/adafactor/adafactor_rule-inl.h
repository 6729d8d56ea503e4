// The first half of Adafactor in vectors, compiled once a target.
#if defined(TRAFO_ADAFACTOR_RULE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAFO_ADAFACTOR_RULE_INL_H_
#undef TRAFO_ADAFACTOR_RULE_INL_H_
#else
#define TRAFO_ADAFACTOR_RULE_INL_H_
#endif

#include "engine/optim/update_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {
namespace {

template <class T>
void adafactor_update(const UpdateParams& p, int64_t begin, int64_t end) {
  T* grad = static_cast<T*>(p.state.grad);
  const T scale = static_cast<T>(p.grad_scale);
  for (int64_t i = begin; i < end; ++i) grad[i] *= scale;
}

}  // namespace
}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
