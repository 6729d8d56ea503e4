// ReLU, both forms of GELU and SiLU of a vector, and what their gradients are multiplied with.
// Compiled once a target.
#if defined(TRAFO_OPS_ACTIVATION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAFO_OPS_ACTIVATION_INL_H_
#undef TRAFO_OPS_ACTIVATION_INL_H_
#else
#define TRAFO_OPS_ACTIVATION_INL_H_
#endif

#include "engine/backend/cpu/exp-inl.h"
#include "engine/backend/cpu/normal_distribution-inl.h"
#include "engine/backend/cpu/simd-inl.h"
#include "engine/ops/activation/activation.h"

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// GELU's 0.5 (1 + tanh(u)) is sigmoid(2u), which keeps its digits for very negative u and needs one
// exponential. 2u = kGeluScale (x + kGeluCubic x^3); both are even more than flat beyond
// kGeluBound, where x^3 could overflow.
inline constexpr double kGeluScale = 2 * 0.79788456080286535588;  // 2 sqrt(2 / pi)
inline constexpr double kGeluCubic = 0.044715;
inline constexpr double kGeluBound = 64;

// x within `bound` on both sides; NaN stays NaN.
template <class D>
HWY_INLINE hn::Vec<D> clamped(D d, hn::Vec<D> x, double bound) {
  const auto high = hn::Set(d, static_cast<hn::TFromD<D>>(bound));
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Min(hn::Max(x, hn::Neg(high)), high));
}

template <Activation kind, class D>
HWY_INLINE hn::Vec<D> activate(D d, hn::Vec<D> x) {
  using T = hn::TFromD<D>;
  if constexpr (kind == Activation::relu) {
    return hn::IfThenZeroElse(hn::Lt(x, hn::Zero(d)), x);  // NaN stays NaN
  } else if constexpr (kind == Activation::gelu) {
    const auto bound = hn::Set(d, static_cast<T>(kGeluBound));
    const auto v = hn::Min(hn::Max(x, hn::Neg(bound)), bound);
    const auto slope =
        hn::MulAdd(hn::Mul(v, v), hn::Set(d, static_cast<T>(kGeluScale * kGeluCubic)),
                   hn::Set(d, static_cast<T>(kGeluScale)));
    return hn::Mul(x, fast_sigmoid(d, hn::Mul(v, slope)));
  } else if constexpr (kind == Activation::gelu_erf) {
    const auto v = clamped(d, x, kNormalBound);
    return hn::Mul(hn::Max(x, v), normal_distribution(d, v).cumulative);  // -infinity gives 0
  } else {
    return hn::Mul(x, fast_sigmoid(d, x));
  }
}

// dy times the derivative at x.
template <Activation kind, class D>
HWY_INLINE hn::Vec<D> activation_gradient(D d, hn::Vec<D> x, hn::Vec<D> dy) {
  using T = hn::TFromD<D>;
  if constexpr (kind == Activation::relu) {
    return hn::IfThenZeroElse(hn::Le(x, hn::Zero(d)), dy);
  } else if constexpr (kind == Activation::gelu) {
    // s + x s (1 - s) (2u)'
    const auto v = clamped(d, x, kGeluBound);
    const auto square = hn::Mul(v, v);
    const auto scale = hn::Set(d, static_cast<T>(kGeluScale));
    const auto slope =
        hn::MulAdd(square, hn::Set(d, static_cast<T>(kGeluScale * kGeluCubic)), scale);
    const auto derivative =
        hn::MulAdd(square, hn::Set(d, static_cast<T>(3 * kGeluScale * kGeluCubic)), scale);
    const auto s = fast_sigmoid_pair(d, hn::Mul(v, slope));
    const auto rest = hn::Mul(hn::Mul(v, s.complement), derivative);
    return hn::Mul(dy, hn::MulAdd(s.value, rest, s.value));
  } else if constexpr (kind == Activation::gelu_erf) {
    // Phi + x phi
    const auto v = clamped(d, x, kNormalBound);
    const auto normal = normal_distribution(d, v);
    return hn::Mul(dy, hn::MulAdd(v, normal.density, normal.cumulative));
  } else {
    // s (1 + x (1 - s))
    const auto s = fast_sigmoid_pair(d, x);
    return hn::Mul(dy, hn::MulAdd(hn::Mul(x, s.complement), s.value, s.value));
  }
}

// fn(std::integral_constant<Activation, kind>{}) for the kind that is known at run time only.
template <class F>
void with_activation(Activation kind, F&& fn) {
  switch (kind) {
    case Activation::relu:
      return fn(std::integral_constant<Activation, Activation::relu>{});
    case Activation::gelu:
      return fn(std::integral_constant<Activation, Activation::gelu>{});
    case Activation::silu:
      return fn(std::integral_constant<Activation, Activation::silu>{});
    case Activation::gelu_erf:
      return fn(std::integral_constant<Activation, Activation::gelu_erf>{});
  }
}

}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
