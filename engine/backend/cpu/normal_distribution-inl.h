// The standard normal distribution of vectors, for the exact GELU. Compiled once a target; see
// simd.h for how a kernel file includes this.
#if defined(TRAFO_CPU_NORMAL_DISTRIBUTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAFO_CPU_NORMAL_DISTRIBUTION_INL_H_
#undef TRAFO_CPU_NORMAL_DISTRIBUTION_INL_H_
#else
#define TRAFO_CPU_NORMAL_DISTRIBUTION_INL_H_
#endif

#include <iterator>

#include "engine/backend/cpu/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Beyond it the tail is 0 in float32 and float64.
inline constexpr double kNormalBound = 40;

template <class V>
struct NormalDistribution {
  V cumulative;  // Phi(x) = erfc(-x / sqrt 2) / 2
  V density;     // e^(-x^2 / 2) / sqrt(2 pi)
};

// Both at x in [-kNormalBound, kNormalBound], within a few units in the last place: the tail of a
// negative x keeps its digits.
//
// With z = |x| / sqrt 2, erfc(z) = e^(-z^2) t Q(t), t = 2 / (2 + z) in (0, 1] (the substitution of
// Numerical Recipes, section 6.2). Q is a polynomial in s = rate t - shift, which runs from -1 to 1
// for z from `last` to 0: the interpolation of e^(z^2) erfc(z) / t in Chebyshev's points, with a
// relative error of 6e-9 (float32, z <= 11) and 3e-17 (float64, z <= 29).
template <class D>
HWY_INLINE NormalDistribution<hn::Vec<D>> normal_distribution(D d, hn::Vec<D> x) {
  using T = hn::TFromD<D>;
  constexpr bool is_float = sizeof(T) == 4;
  constexpr double kFloat[] = {
      6.3315501835453666e-6,    6.43867486467945486e-6,  -0.0000761019321304357486,
      0.0000149336529789522925, 0.000652718020173348928, -0.000728591400769804931,
      -0.00648890872821641428,  0.0066372730142970162,   0.104900599546435467,
      0.328058015176002479,     0.567017294777017552};
  constexpr double kDouble[] = {
      -6.01700792272969854e-10, 6.31009556124493171e-10,   4.59745642092046336e-9,
      -8.05882265086102566e-9,  -1.01656677511765325e-8,   4.13828121315196417e-8,
      -3.38282518452207086e-8,  -7.75173594640459783e-8,   2.97233424559719942e-7,
      -3.05593579724211547e-7,  -7.23833203986648363e-7,   2.89949117966385775e-6,
      -2.01764867163472988e-6,  -0.0000110191734931347331, 0.000029638174578679319,
      0.0000136984949880834364, -0.000192865032054215474,  0.000154976224083259973,
      0.00113642586147525173,   -0.00186978632946116249,   -0.00896074268583605019,
      0.0125414003146641512,    0.125131192460261604,      0.338482858417752254,
      0.533544157184416785};
  const auto set = [d](double value) HWY_ATTR { return hn::Set(d, static_cast<T>(value)); };
  // x^2 / 2 in two parts, since an error of the exponent is one of the result.
  const auto half = hn::Mul(x, set(0.5));
  const auto exponent = hn::Mul(half, x);
  const auto rest = hn::MulSub(half, x, exponent);
  const auto whole = exp_nonpositive(d, hn::Neg(exponent));
  const auto power = hn::NegMulAdd(whole, rest, whole);

  const auto z = hn::Min(hn::Mul(hn::Abs(x), set(0.70710678118654752440)), set(is_float ? 11 : 29));
  const auto t = hn::Div(set(2), hn::Add(z, set(2)));
  const auto s =
      hn::MulSub(t, set(is_float ? 26.0 / 11 : 62.0 / 29), set(is_float ? 15.0 / 11 : 33.0 / 29));
  auto q = set(is_float ? kFloat[0] : kDouble[0]);
  if constexpr (is_float) {
    for (size_t k = 1; k < std::size(kFloat); ++k) q = hn::MulAdd(q, s, set(kFloat[k]));
  } else {
    for (size_t k = 1; k < std::size(kDouble); ++k) q = hn::MulAdd(q, s, set(kDouble[k]));
  }
  const auto tail = hn::Mul(hn::Mul(power, set(0.5)), hn::Mul(t, q));
  return {hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(set(1), tail)),
          hn::Mul(power, set(0.39894228040143267794))};
}

}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
