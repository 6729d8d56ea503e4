// The logarithm of core/numeric/portable_math.h in vectors. Compiled once a target; see simd.h for
// how a kernel file includes this.
#if defined(TRAFO_CPU_LOG_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAFO_CPU_LOG_INL_H_
#undef TRAFO_CPU_LOG_INL_H_
#else
#define TRAFO_CPU_LOG_INL_H_
#endif

#include <cstdint>

#include "engine/core/numeric/portable_math.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// log x of doubles x >= the smallest normal number, below infinity, bit for bit as portable_log():
// the same operations in the same order. NaN stays NaN. Other arguments give any number.
template <class D>
HWY_INLINE hn::Vec<D> log_normal(D d, hn::Vec<D> x) {
  namespace p = portable_log_parts;
  const hn::RebindToSigned<D> di;
  const auto bits = hn::BitCast(di, x);
  const auto fraction = hn::And(bits, hn::Set(di, (int64_t{1} << p::kMantissaBits) - 1));
  const auto one = hn::Set(di, int64_t{p::kBias} << p::kMantissaBits);
  auto mantissa = hn::BitCast(d, hn::Or(fraction, one));
  const auto halves = hn::Gt(mantissa, hn::Set(d, p::kRootOfTwo));
  mantissa = hn::IfThenElse(halves, hn::Mul(mantissa, hn::Set(d, 0.5)), mantissa);
  const auto exponent =
      hn::Sub(hn::ShiftRight<p::kMantissaBits>(bits), hn::Set(di, int64_t{p::kBias}));
  auto k = hn::ConvertTo(d, exponent);
  k = hn::IfThenElse(halves, hn::Add(k, hn::Set(d, 1)), k);

  const auto f = hn::Sub(mantissa, hn::Set(d, 1));
  const auto s = hn::Div(f, hn::Add(hn::Set(d, 2), f));
  const auto z = hn::Mul(s, s);
  auto rest = hn::Zero(d);
#pragma GCC unroll 11
  for (int n = p::kTerms; n > 0; --n)
    rest = hn::Mul(z, hn::Add(hn::Set(d, 2.0 / (2 * n + 1)), rest));
  const auto half_square = hn::Mul(hn::Mul(hn::Set(d, 0.5), f), f);
  const auto low =
      hn::Add(hn::Mul(s, hn::Add(half_square, rest)), hn::Mul(k, hn::Set(d, p::kLog2Low)));
  const auto log =
      hn::Sub(hn::Mul(k, hn::Set(d, p::kLog2High)), hn::Sub(hn::Sub(half_square, low), f));
  return hn::IfThenElse(hn::IsNaN(x), x, log);
}

}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
