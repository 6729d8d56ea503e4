#include "engine/core/numeric/portable_math.h"

#include <bit>
#include <cstdint>
#include <limits>

namespace trafo {
namespace {

using namespace portable_log_parts;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// 2^exponent, a normal number.
double power_of_two(int exponent) {
  return std::bit_cast<double>(static_cast<uint64_t>(exponent + kBias) << kMantissaBits);
}

}  // namespace

// x = k log 2 + r with |r| < 0.35, exp(x) = 2^k exp(r), and the Taylor series of exp(r), whose next
// term is below 5e-18.
double portable_exp(double x) noexcept {
  if (x != x) return x;
  if (x > 709.79) return kInfinity;
  if (x < -745.14) return 0;
  const double scaled = x * 0x1.71547652b82fep+0;  // log2(e)
  const int k = static_cast<int>(scaled + (scaled < 0 ? -0.5 : 0.5));
  const double r = (x - k * kLog2High) - k * kLog2Low;
  constexpr int kTermsOfExp = 13;
  double series = 1;
  for (int n = kTermsOfExp; n > 2; --n) series = 1 + series * r / n;
  const double value = 1 + (r + r * r * 0.5 * series);
  // In two steps: 2^k alone may be no number, and a subnormal result is rounded once.
  const int half = k / 2;
  return value * power_of_two(half) * power_of_two(k - half);
}

// x = 2^k (1 + f) with 1 + f between sqrt(1/2) and sqrt(2). With s = f / (2 + f), log(1 + f) is
// 2 (s + s^3 / 3 + s^5 / 5 + ...) = f - (f^2 / 2 - s (f^2 / 2 + R)), where R = 2 (s^2 / 3 + s^4 / 5
// + ...).
double portable_log(double x) noexcept {
  if (!(x > 0)) return x == 0 ? -kInfinity : std::numeric_limits<double>::quiet_NaN();
  if (x == kInfinity) return x;
  int k = -kBias;
  if (x < std::numeric_limits<double>::min()) {
    constexpr int kUp = 54;
    x *= power_of_two(kUp);
    k -= kUp;
  }
  const auto bits = std::bit_cast<uint64_t>(x);
  k += static_cast<int>(bits >> kMantissaBits);
  constexpr uint64_t kMantissa = (uint64_t{1} << kMantissaBits) - 1;
  double mantissa = std::bit_cast<double>((bits & kMantissa) | uint64_t{kBias} << kMantissaBits);
  if (mantissa > kRootOfTwo) {
    mantissa *= 0.5;
    ++k;
  }
  const double f = mantissa - 1, s = f / (2 + f), z = s * s;
  double rest = 0;
  for (int n = kTerms; n > 0; --n) rest = z * (2.0 / (2 * n + 1) + rest);
  const double half_square = 0.5 * f * f;
  return k * kLog2High - ((half_square - (s * (half_square + rest) + k * kLog2Low)) - f);
}

}  // namespace trafo
