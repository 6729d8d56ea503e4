// Powers, the exponential minus one and the error function with the same bits on every system
// (portable_math.h).
#pragma once

namespace trafo {

// x^y with the special cases of C's pow. The relative error is below 2 + |y log x| / 100 units in
// the last place. Whole powers to 8 are products, and powers of 0.5 and -0.5 come from the square
// root.
double portable_pow(double x, double y) noexcept;
double portable_expm1(double x) noexcept;  // exp(x) - 1, within four units in the last place
double portable_erf(double x) noexcept;    // within two units in the last place

// a b + c, rounded once. Some C libraries round twice.
float portable_fma(float a, float b, float c) noexcept;

// The result for a float or double; for floats nearly always the nearest one.
template <class T>
T pow_of(T x, T y) noexcept {
  return static_cast<T>(portable_pow(static_cast<double>(x), static_cast<double>(y)));
}
template <class T>
T erf_of(T x) noexcept {
  return static_cast<T>(portable_erf(static_cast<double>(x)));
}

}  // namespace trafo
