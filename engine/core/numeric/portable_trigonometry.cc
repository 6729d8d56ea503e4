#include "engine/core/numeric/portable_trigonometry.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "engine/core/numeric/portable_arithmetic.h"

namespace trafo {
namespace {

using portable::DoublePair;
using portable::exact_product;
using portable::exact_sum;
using portable::kMantissa;
using portable::kMantissaBits;

// 2 / pi after 64 zero bits, enough for the largest double.
constexpr uint64_t kTwoOverPi[] = {0,
                                   0xa2f9836e4e441529,
                                   0xfc2757d1f534ddc0,
                                   0xdb6295993c439041,
                                   0xfe5163abdebbc561,
                                   0xb7246e3a424dd2e0,
                                   0x06492eea09d1921c,
                                   0xfe1deb1cb129a73e,
                                   0xe88235f52ebb4484,
                                   0xe99c7026b45f7e41,
                                   0x3991d639835339f4,
                                   0x9c845f8bbdf9283b,
                                   0x1ff897ffde05980f,
                                   0xef2f118b5a0a6d1f,
                                   0x6d367ecf27cb09b7,
                                   0x4f463f669e5fea2d,
                                   0x7527bac7ebe5f17b,
                                   0x3d0739f78a5292ea,
                                   0x6bfb5fb11f8d5d08,
                                   0x56033046fc7b6bab};
constexpr double kHalfPiHigh = 0x1.921fb54442d18p+0, kHalfPiLow = 0x1.1a62633145c07p-54;
constexpr double kQuarterPi = kHalfPiHigh / 2;

using Wide = unsigned __int128;

// x = quadrant pi / 2 + angle, with an angle between -pi / 4 and pi / 4.
struct ReducedAngle {
  unsigned quadrant;  // modulo 4
  DoublePair angle;
};

// bits / 2^128 times pi / 2.
DoublePair angle_of(Wide bits) {
  const auto top = static_cast<uint64_t>(bits >> 64), rest = static_cast<uint64_t>(bits);
  const int zeros = top ? std::countl_zero(top) : 64 + std::countl_zero(rest);
  bits <<= zeros;
  const double high =
      static_cast<double>(static_cast<uint64_t>(bits >> 75)) * portable::power_of_two(-53 - zeros);
  const double low = static_cast<double>(static_cast<uint64_t>(bits >> 22) & (2 * kMantissa + 1)) *
                     portable::power_of_two(-106 - zeros);
  const DoublePair product = exact_product(high, kHalfPiHigh);
  return exact_sum(product.high, product.low + (high * kHalfPiLow + low * kHalfPiHigh));
}

// Payne and Hanek, "Radian reduction for trigonometric functions", 1983: with x = m 2^e, the bits
// of 2 / pi that give multiples of 4 are left out, and the product has two bits of the quadrant and
// 190 bits of the fraction. x is finite and at least pi / 4.
ReducedAngle reduced(double x) {
  const auto bits = std::bit_cast<uint64_t>(x);
  const int exponent =
      static_cast<int>(bits >> kMantissaBits) - portable::kExponentBias - kMantissaBits;
  const uint64_t m = (bits & kMantissa) | (uint64_t{1} << kMantissaBits);
  const auto first = static_cast<size_t>(exponent - 2 + 64), word = first / 64, shift = first % 64;
  const auto bits_at = [&](size_t i) {
    return shift ? kTwoOverPi[i] << shift | kTwoOverPi[i + 1] >> (64 - shift) : kTwoOverPi[i];
  };
  const Wide low = Wide{m} * bits_at(word + 2);
  const Wide middle = Wide{m} * bits_at(word + 1) + (low >> 64);
  const uint64_t high = m * bits_at(word) + static_cast<uint64_t>(middle >> 64);
  Wide fraction = Wide{high} << 66 | Wide{static_cast<uint64_t>(middle)} << 2 |
                  static_cast<uint64_t>(low) >> 62;
  auto quadrant = static_cast<unsigned>(high >> 62);
  if (!(fraction >> 127)) return {quadrant, angle_of(fraction)};
  const DoublePair angle = angle_of(-fraction);
  return {(quadrant + 1) % 4, {-angle.high, -angle.low}};
}

// Taylor series of the sine and the cosine of an angle, whose next terms are below 1e-18.
double sine(DoublePair angle) {
  constexpr double kFactorials[] = {
      -1.0 / 6,        1.0 / 120,        -1.0 / 5040,          1.0 / 362880,
      -1.0 / 39916800, 1.0 / 6227020800, -1.0 / 1307674368000, 1.0 / 355687428096000};
  const double x = angle.high, z = x * x;
  return x + (x * z * portable::polynomial(z, kFactorials) + angle.low * (1 - 0.5 * z));
}
double cosine(DoublePair angle) {
  constexpr double kFactorials[] = {
      1.0 / 24,        -1.0 / 720,         1.0 / 40320,          -1.0 / 3628800,
      1.0 / 479001600, -1.0 / 87178291200, 1.0 / 20922789888000, -1.0 / 6402373705728000};
  const double x = angle.high, z = x * x;
  const double half = 0.5 * z, high = 1 - half;
  return high +
         (((1 - high) - half) + (z * z * portable::polynomial(z, kFactorials) - x * angle.low));
}

// The sine of x + shift pi / 2.
double shifted_sine(double x, unsigned shift) {
  if (!(std::abs(x) <= std::numeric_limits<double>::max()))
    return std::numeric_limits<double>::quiet_NaN();
  const bool negative = std::signbit(x) && shift == 0;  // the cosine is even
  const double size = std::abs(x);
  const ReducedAngle of = size < kQuarterPi ? ReducedAngle{0, {size, 0}} : reduced(size);
  const unsigned quadrant = (of.quadrant + shift) % 4;
  const double value = quadrant % 2 ? cosine(of.angle) : sine(of.angle);
  return (quadrant >= 2) != negative ? -value : value;
}

}  // namespace

double portable_sin(double x) noexcept {
  return shifted_sine(x, 0);
}
double portable_cos(double x) noexcept {
  return shifted_sine(x, 1);
}

}  // namespace trafo
