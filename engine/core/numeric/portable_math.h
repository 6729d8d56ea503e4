// Exponential and logarithm with the same bits on every system. The functions of C libraries differ
// in the last bit, and results of training must not.
#pragma once

namespace trafo {

// Within one unit in the last place. Only sums, products and quotients of doubles in a fixed order.
double portable_exp(double x) noexcept;
double portable_log(double x) noexcept;  // -infinity for zero, NaN below zero

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
