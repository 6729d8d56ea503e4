// Arithmetic of the portable functions (portable_math.h): pairs of doubles, powers of two,
// polynomials.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace trafo::portable {

constexpr int kMantissaBits = 52, kExponentBias = 1023;
constexpr uint64_t kMantissa = (uint64_t{1} << kMantissaBits) - 1;
// log 2 in two parts. The first has 33 bits, so that its product with an exponent is exact.
constexpr double kLog2High = 0x1.62e42feep-1, kLog2Low = 0x1.a39ef35793c76p-33;
constexpr double kLog2E = 0x1.71547652b82fep+0;

// high + low; high is the nearest double to it.
struct DoublePair {
  double high = 0, low = 0;
};

// a + b (Knuth's two-sum).
inline DoublePair exact_sum(double a, double b) {
  const double sum = a + b, part = sum - a;
  return {sum, (a - (sum - part)) + (b - part)};
}

// a b, if neither overflows or underflows (Dekker's product, with Veltkamp's split).
inline DoublePair exact_product(double a, double b) {
  constexpr double kSplit = 0x1p27 + 1;
  const double wide_a = kSplit * a, wide_b = kSplit * b;
  const double a_high = wide_a - (wide_a - a), a_low = a - a_high;
  const double b_high = wide_b - (wide_b - b), b_low = b - b_high;
  const double product = a * b;
  return {product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low};
}

// 2^exponent, a normal number.
inline double power_of_two(int exponent) {
  return std::bit_cast<double>(static_cast<uint64_t>(exponent + kExponentBias) << kMantissaBits);
}

// c[0] + c[1] x + c[2] x^2 + ..., the even and the odd powers apart, which halves the latency.
template <size_t count>
double polynomial(double x, const double (&c)[count]) {
  static_assert(count % 2 == 0);
  const double z = x * x;
  double even = c[count - 2], odd = c[count - 1];
  for (size_t i = count - 2; i > 0; i -= 2) {
    even = even * z + c[i - 2];
    odd = odd * z + c[i - 1];
  }
  return even + x * odd;
}

}  // namespace trafo::portable
