// A fast exponential for arguments that are not positive, which is all that softmax and sigmoids
// need. Compiled once a target; see simd.h for how a kernel file includes this.
#if defined(TRAFO_CPU_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAFO_CPU_EXP_INL_H_
#undef TRAFO_CPU_EXP_INL_H_
#else
#define TRAFO_CPU_EXP_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// e^x for x <= 0 within two units in the last place; 0 where the result would be subnormal; NaN
// stays NaN.
//
// x = n ln 2 + r with |r| <= ln(2) / 2, e^r by its Taylor series up to where the rest is below
// rounding, times 2^n. Adding a number whose last bit counts ones rounds to n and leaves n plus the
// exponent's bias in the low bits, ready to be shifted into place.
template <class D>
HWY_INLINE hn::Vec<D> exp_nonpositive(D d, hn::Vec<D> x) {
  using T = hn::TFromD<D>;
  constexpr bool is_float = sizeof(T) == 4;
  const hn::RebindToUnsigned<D> du;
  const auto set = [d](double value) HWY_ATTR { return hn::Set(d, static_cast<T>(value)); };

  const auto magic = set(is_float ? 0x1.8p23 + 127 : 0x1.8p52 + 1023);
  const auto shifted = hn::MulAdd(x, set(1.4426950408889634074), magic);
  const auto n = hn::Sub(shifted, magic);
  // ln 2 in two parts, the first with so few bits that its product with n is exact.
  auto r = hn::NegMulAdd(n, set(is_float ? 0x1.62e4p-1 : 0x1.62e42feep-1), x);
  r = hn::NegMulAdd(n, set(is_float ? 0x1.7f7d1cf79abcap-20 : 0x1.a39ef35793c76p-33), r);

  auto series = set(is_float ? 1.0 / 5040 : 1.0 / 6227020800);
  if constexpr (!is_float) {
    series = hn::MulAdd(series, r, set(1.0 / 479001600));
    series = hn::MulAdd(series, r, set(1.0 / 39916800));
    series = hn::MulAdd(series, r, set(1.0 / 3628800));
    series = hn::MulAdd(series, r, set(1.0 / 362880));
    series = hn::MulAdd(series, r, set(1.0 / 40320));
    series = hn::MulAdd(series, r, set(1.0 / 5040));
  }
  series = hn::MulAdd(series, r, set(1.0 / 720));
  series = hn::MulAdd(series, r, set(1.0 / 120));
  series = hn::MulAdd(series, r, set(1.0 / 24));
  series = hn::MulAdd(series, r, set(1.0 / 6));
  series = hn::MulAdd(series, r, set(0.5));
  series = hn::MulAdd(series, r, set(1));
  series = hn::MulAdd(series, r, set(1));

  const auto power =
      hn::BitCast(d, hn::ShiftLeft < is_float ? 23 : 52 > (hn::BitCast(du, shifted)));
  return hn::IfThenZeroElse(hn::Lt(x, set(is_float ? -87.3 : -708)), hn::Mul(series, power));
}

// 1 / (1 + e^-x), exact in its digits down to the smallest normal number.
template <class D>
HWY_INLINE hn::Vec<D> fast_sigmoid(D d, hn::Vec<D> x) {
  const auto one = hn::Set(d, static_cast<hn::TFromD<D>>(1));
  const auto e = exp_nonpositive(d, hn::Neg(hn::Abs(x)));
  return hn::Div(hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one), hn::Add(one, e));
}

// The same and 1 minus it, both exact in their digits: subtracting would cancel for large x.
template <class V>
struct SigmoidPair {
  V value, complement;
};
template <class D>
HWY_INLINE SigmoidPair<hn::Vec<D>> fast_sigmoid_pair(D d, hn::Vec<D> x) {
  const auto one = hn::Set(d, static_cast<hn::TFromD<D>>(1));
  const auto e = exp_nonpositive(d, hn::Neg(hn::Abs(x)));
  const auto large = hn::Div(one, hn::Add(one, e)), small = hn::Mul(e, large);
  const auto negative = hn::Lt(x, hn::Zero(d));
  return {hn::IfThenElse(negative, small, large), hn::IfThenElse(negative, large, small)};
}

}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
