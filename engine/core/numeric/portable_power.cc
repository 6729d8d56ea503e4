#include "engine/core/numeric/portable_power.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "engine/core/numeric/portable_arithmetic.h"
#include "engine/core/numeric/portable_math.h"

namespace trafo {
namespace {

using portable::DoublePair;
using portable::exact_product;
using portable::exact_sum;
using portable::polynomial;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// log x of a positive finite x, with an error below 2^-60 of it. As in portable_log, x = 2^k (1 +
// f), s = f / (2 + f) and log(1 + f) = 2 s + s (2 z / 3 + 2 z^2 / 5 + ...) with z = s^2.
DoublePair log_pair(double x) {
  int k = -portable::kExponentBias;
  if (x < std::numeric_limits<double>::min()) {
    constexpr int kUp = 54;
    x *= portable::power_of_two(kUp);
    k -= kUp;
  }
  const auto bits = std::bit_cast<uint64_t>(x);
  k += static_cast<int>(bits >> portable::kMantissaBits);
  double mantissa =
      std::bit_cast<double>((bits & portable::kMantissa) | std::bit_cast<uint64_t>(1.0));
  if (mantissa > 0x1.6a09e667f3bcdp+0) {  // sqrt(2)
    mantissa *= 0.5;
    ++k;
  }
  const double f = mantissa - 1;
  const DoublePair divisor = exact_sum(2, f);
  const double s = f / divisor.high;
  const DoublePair product = exact_product(s, divisor.high);
  const double s_low = ((f - product.high) - product.low - s * divisor.low) / divisor.high;
  const double z = s * s;
  constexpr double kOdd[] = {2.0 / 3,  2.0 / 5,  2.0 / 7,  2.0 / 9,  2.0 / 11, 2.0 / 13,
                             2.0 / 15, 2.0 / 17, 2.0 / 19, 2.0 / 21, 2.0 / 23, 2.0 / 25};
  const double rest = s * z * polynomial(z, kOdd);
  const DoublePair sum = exact_sum(k * portable::kLog2High, 2 * s);
  return exact_sum(sum.high, sum.low + (2 * s_low + rest + k * portable::kLog2Low));
}

// (exp(r) - 1 - r) / r^2 for |r| < 0.36, the Taylor series. The next term is below 1e-19.
double exp_rest(double r) {
  constexpr double kFactorials[] = {
      1.0 / 2,     1.0 / 6,      1.0 / 24,      1.0 / 120,      1.0 / 720,       1.0 / 5040,
      1.0 / 40320, 1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800};
  return polynomial(r, kFactorials);
}

// exp(high + low)
double exp_of_pair(DoublePair of) {
  if (of.high > 709.79) return kInfinity;
  if (of.high < -745.14) return 0;
  const int k = static_cast<int>(of.high * portable::kLog2E + (of.high < 0 ? -0.5 : 0.5));
  const DoublePair sum = exact_sum(of.high, -k * portable::kLog2High);
  const double low = sum.low + (of.low - k * portable::kLog2Low);
  const double r = sum.high + low, r_low = (sum.high - r) + low;
  const double value = 1 + (r + (r * r * exp_rest(r) + r_low));
  // In two steps: 2^k alone may be no number, and a subnormal result is rounded once.
  const int half = k / 2;
  return value * portable::power_of_two(half) * portable::power_of_two(k - half);
}

// x^n by squaring, for a small n.
double whole_power(double x, int n) {
  double power = 1;
  for (unsigned left = static_cast<unsigned>(std::abs(n)); left; left /= 2, x *= x)
    if (left % 2) power *= x;
  return n < 0 ? 1 / power : power;
}

// Powers of zero, infinity and NaN, and of one.
double special_power(double x, double y, bool odd) {
  if (y == 0 || x == 1) return 1;
  if (std::isnan(x) || std::isnan(y)) return kNaN;
  const double size = std::abs(x);
  if (std::isinf(y)) return size == 1 ? 1 : (size > 1) == (y > 0) ? kInfinity : 0;
  const double value = (size > 1) == (y > 0) ? kInfinity : 0;  // x is zero or infinite
  return odd && std::signbit(x) ? -value : value;
}

// |x|^y of finite numbers, where x is not zero.
double positive_power(double x, double y) {
  const DoublePair log = log_pair(std::abs(x));
  if (std::abs(log.high * y) > 1000) return (log.high > 0) == (y > 0) ? kInfinity : 0;
  if (log.high == 0 || std::abs(y) < 0x1p-60) return 1;  // the exact product would be subnormal
  const DoublePair product = exact_product(log.high, y);
  return exp_of_pair(exact_sum(product.high, product.low + log.low * y));
}

}  // namespace

double portable_pow(double x, double y) noexcept {
  constexpr int kMostProducts = 8;
  constexpr double kEven = 0x1p53;  // doubles from it on are even
  const bool whole = std::trunc(y) == y;
  const bool odd = whole && std::abs(y) < kEven && std::fmod(y, 2) != 0;
  if (y == 0 || x == 0 || x == 1 || !std::isfinite(x) || !std::isfinite(y))
    return special_power(x, y, odd);
  if (whole && std::abs(y) <= kMostProducts) return whole_power(x, static_cast<int>(y));
  if (x < 0 && !whole) return kNaN;
  if (y == 0.5) return std::sqrt(x);
  if (y == -0.5) return 1 / std::sqrt(x);
  const double value = positive_power(x, y);
  return x < 0 && odd ? -value : value;
}

// The series for small x, where the difference would cancel.
double portable_expm1(double x) noexcept {
  constexpr double kSeries = 0.35;
  return std::abs(x) < kSeries ? x + x * x * exp_rest(x) : portable_exp(x) - 1;
}

// 2 / sqrt(pi) (x - x^3 / 3 + x^5 / (2! 5) - x^7 / (3! 7) + ...) up to 1. For larger x,
// 1 - erfc(x) with erfc(x) = exp(-x^2) Q(u) / (1 + 2 x) and u from -1 to 1 as x runs from 1 to 6.
// The polynomial Q interpolates in 80 of Chebyshev's points, with a relative error below 1e-17.
double portable_erf(double x) noexcept {
  constexpr double kTwoOverSqrtPi = 1.12837916709551257390, kOne = 6;
  const double size = std::abs(x);
  if (std::isnan(x)) return x;
  if (size >= kOne) return x < 0 ? -1 : 1;
  if (size <= 1) {
    constexpr double kSeries[] = {-1.0 / 3,
                                  1.0 / 10,
                                  -1.0 / 42,
                                  1.0 / 216,
                                  -1.0 / 1320,
                                  1.0 / 9360,
                                  -1.0 / 75600,
                                  1.0 / 685440,
                                  -1.0 / 6894720,
                                  1.0 / 76204800,
                                  -1.0 / 918086400,
                                  1.0 / 11975040000,
                                  -1.0 / 168129561600,
                                  1.0 / 2528170444800,
                                  -1.0 / 40537905408000,
                                  1.0 / 690452066304000,
                                  -1.0 / 12449059983360000,
                                  1.0 / 236887827111936000};
    const double z = size * size;
    const double value = kTwoOverSqrtPi * (size + size * z * polynomial(z, kSeries));
    return std::signbit(x) ? -value : value;
  }
  constexpr double kTail[] = {0x1.42c35a05c433ep+0,   -0x1.b55ccb1ffbf65p-5, -0x1.35da476ce3222p-7,
                              0x1.a23e5835946e0p-7,   -0x1.9e67118997ba8p-8, 0x1.1db72b30bb199p-9,
                              -0x1.2cdecb0d46c11p-11, 0x1.e74d8e127b880p-14, -0x1.2065887517a10p-16,
                              0x1.99e71c0ef73e8p-20,  0x1.8fc4b6e9842fbp-27, -0x1.ab297e774e443p-26,
                              0x1.65399fc707ba9p-29,  0x1.887dbaa55eb7ap-33, -0x1.0911d46ad7cdap-34,
                              0x1.75655acbebd4ap-42,  0x1.2730ad3e17e1cp-40, 0};
  const double u = 2.5 * (size - 4) / (size + 4) + 0.5;
  const double tail = portable_exp(-size * size) * polynomial(u, kTail) / (1 + 2 * size);
  return x < 0 ? tail - 1 : 1 - tail;
}

// The product is exact. The sum is rounded to odd, so that the second rounding is right (Boldo and
// Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
float portable_fma(float a, float b, float c) noexcept {
#ifdef __FP_FAST_FMAF
  return std::fma(a, b, c);
#else
  const double product = static_cast<double>(a) * static_cast<double>(b);
  const DoublePair sum = exact_sum(product, static_cast<double>(c));
  auto bits = std::bit_cast<uint64_t>(sum.high);
  if (!std::isfinite(sum.high) || sum.low == 0 || bits % 2) return static_cast<float>(sum.high);
  bits += (sum.low > 0) == (sum.high > 0) ? uint64_t{1} : ~uint64_t{0};
  return static_cast<float>(std::bit_cast<double>(bits));
#endif
}

}  // namespace trafo
