// Exponential and logarithm with the same bits on every system. The functions of C libraries differ
// in the last bit, and results of training must not.
#pragma once

namespace trafo {

// Within one unit in the last place. Only sums, products and quotients of doubles in a fixed order.
double portable_exp(double x) noexcept;
double portable_log(double x) noexcept;  // -infinity for zero, NaN below zero

// Constants of portable_log(), for its form in vectors (backend/cpu/log-inl.h).
namespace portable_log_parts {
// log 2 in two parts. The first has 33 bits, so that its product with an exponent is exact.
inline constexpr double kLog2High = 0x1.62e42feep-1, kLog2Low = 0x1.a39ef35793c76p-33;
inline constexpr double kRootOfTwo = 0x1.6a09e667f3bcdp+0;
inline constexpr int kMantissaBits = 52, kBias = 1023, kTerms = 11;
}  // namespace portable_log_parts

// The result for a float or double; for floats nearly always the nearest one.
template <class T>
T exp_of(T x) noexcept {
  return static_cast<T>(portable_exp(static_cast<double>(x)));
}
template <class T>
T log_of(T x) noexcept {
  return static_cast<T>(portable_log(static_cast<double>(x)));
}

}  // namespace trafo
