// Sine and cosine with the same bits on every system (portable_math.h).
#pragma once

namespace trafo {

// Of an angle in radians, within one unit in the last place for every double. NaN for infinity.
double portable_sin(double x) noexcept;
double portable_cos(double x) noexcept;

// The result for a float or double; for floats nearly always the nearest one.
template <class T>
T sin_of(T x) noexcept {
  return static_cast<T>(portable_sin(static_cast<double>(x)));
}
template <class T>
T cos_of(T x) noexcept {
  return static_cast<T>(portable_cos(static_cast<double>(x)));
}

}  // namespace trafo
