#include "engine/core/numeric/portable_math.h"
#include "engine/core/numeric/portable_power.h"
#include "engine/core/numeric/portable_trigonometry.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace trafo {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// 20,000 numbers between two bounds, from integers alone: the same on every system.
std::vector<double> numbers_between(double low, double high) {
  std::vector<double> numbers;
  uint64_t state = 88172645463325252u;
  for (int i = 0; i < 20000; ++i) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    numbers.push_back(low + (high - low) * (static_cast<double>(state >> 11) * 0x1p-53));
  }
  return numbers;
}

double ulp_of(double value) {
  return std::nextafter(std::abs(value), kInfinity) - std::abs(value);
}

template <class Function>
uint64_t hash_of_bits(const std::vector<double>& numbers, Function function) {
  uint64_t hash = 14695981039346656037u;
  for (const double x : numbers)
    hash = (hash ^ std::bit_cast<uint64_t>(function(x))) * 1099511628211u;
  return hash;
}

TEST(PortableMath, IsCloseToTheLibraryOfTheHost) {
  for (const double x : numbers_between(-745, 709))
    EXPECT_LE(std::abs(portable_exp(x) - std::exp(x)), 2 * ulp_of(std::exp(x))) << x;
  for (const double bound : {2.0, 1e300})
    for (const double x : numbers_between(0, bound))
      EXPECT_LE(std::abs(portable_log(x) - std::log(x)), 2 * ulp_of(std::log(x))) << x;
}

// MinGW's library has the processor's instructions, which are wrong for large angles.
#ifndef _WIN32
TEST(PortableMath, AnglesAreCloseToTheLibraryOfTheHost) {
  for (const double bound : {0.7, 10.0, 1e6, 1e22, 1e300})
    for (const double x : numbers_between(-bound, bound)) {
      EXPECT_LE(std::abs(portable_sin(x) - std::sin(x)), 2 * ulp_of(std::sin(x))) << x;
      EXPECT_LE(std::abs(portable_cos(x) - std::cos(x)), 2 * ulp_of(std::cos(x))) << x;
    }
}
#endif

TEST(PortableMath, PowersAreCloseToTheLibraryOfTheHost) {
  for (const double base : {1e-9, 0.3, 1.7, 10.0, 1e4})
    for (const double y : numbers_between(-30, 30)) {
      const double power = std::pow(base, y), bound = 3 + std::abs(y * std::log(base)) / 100;
      EXPECT_LE(std::abs(portable_pow(base, y) - power), bound * ulp_of(power)) << base << " " << y;
    }
  for (const double x : numbers_between(-2, 2))
    EXPECT_LE(std::abs(portable_expm1(x) - std::expm1(x)), 5 * ulp_of(std::expm1(x))) << x;
  for (const double x : numbers_between(-6.5, 6.5))
    EXPECT_LE(std::abs(portable_erf(x) - std::erf(x)), 3 * ulp_of(std::erf(x))) << x;
}

// Zeros, infinities, NaN, whole and negative numbers have the results that C gives them.
TEST(PortableMath, SpecialPowersAreOnesOfC) {
  const double smallest = std::numeric_limits<double>::denorm_min();
  const std::vector<double> numbers = {
      0.0,       -0.0,       1.0,          -1.0,     2.0,       -2.0,   0.5,  -0.5,
      3.0,       -3.0,       7.5,          -7.5,     1e308,     -1e308, 1e17, -1e17,
      kInfinity, -kInfinity, std::nan(""), smallest, -smallest, 1023};
  for (const double x : numbers)
    for (const double y : numbers) {
      const double expected = std::pow(x, y), power = portable_pow(x, y);
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(power)) << x << "^" << y << " is " << power;
        continue;
      }
      EXPECT_EQ(std::signbit(power), std::signbit(expected)) << x << "^" << y;
      if (power != expected) {
        EXPECT_LE(std::abs(power - expected), 4 * ulp_of(expected)) << x << "^" << y;
      }
    }
}

// The sum of the exact product and c, rounded once: a sum of doubles rounded to float is rounded
// twice, and differs for these numbers.
TEST(PortableMath, FusedSumIsRoundedOnce) {
  const float a = 1 + 0x1p-12F, c = 0x1p-60F;
  EXPECT_EQ(portable_fma(a, a, c), 1 + 0x1p-11F + 0x1p-23F);
  EXPECT_EQ(portable_fma(a, a, -c), 1 + 0x1p-11F);
  EXPECT_EQ(portable_fma(3, 5, -15), 0);
  EXPECT_EQ(portable_fma(1e30F, 1e30F, -1), std::numeric_limits<float>::infinity());
}

// A host's library rounds a hundredth of the results another way.
TEST(PortableMath, HasTheSameBitsOnEverySystem) {
  EXPECT_EQ(hash_of_bits(numbers_between(-745, 709), portable_exp), 0xcd216a221a23a2f8u);
  EXPECT_EQ(hash_of_bits(numbers_between(0, 1000), portable_log), 0x4ce522e02eb93e19u);
  EXPECT_EQ(hash_of_bits(numbers_between(-1e6, 1e6), portable_sin), 0x161751f595a82bc5u);
  EXPECT_EQ(hash_of_bits(numbers_between(-1e300, 1e300), portable_cos), 0x4e457dcd24062ba0u);
  EXPECT_EQ(hash_of_bits(numbers_between(-1, 1), portable_expm1), 0x317b9a31d1fd73a3u);
  EXPECT_EQ(hash_of_bits(numbers_between(-6, 6), portable_erf), 0x6b6caaf2d428af25u);
  const auto power = [](double y) { return portable_pow(1.7, y); };
  EXPECT_EQ(hash_of_bits(numbers_between(-300, 300), power), 0x10078d6071c2a2f6u);
}

TEST(PortableMath, EndsOfTheRange) {
  EXPECT_EQ(portable_exp(0), 1);
  EXPECT_EQ(portable_exp(-kInfinity), 0);
  EXPECT_EQ(portable_exp(kInfinity), kInfinity);
  EXPECT_EQ(portable_exp(710), kInfinity);
  EXPECT_EQ(portable_exp(-745.13), std::numeric_limits<double>::denorm_min());
  EXPECT_TRUE(std::isnan(portable_exp(std::nan(""))));
  EXPECT_EQ(portable_log(1), 0);
  EXPECT_EQ(portable_log(0), -kInfinity);
  EXPECT_EQ(portable_log(kInfinity), kInfinity);
  EXPECT_NEAR(portable_log(std::numeric_limits<double>::denorm_min()), -744.4400719213812, 1e-12);
  EXPECT_TRUE(std::isnan(portable_log(-1)));
  EXPECT_TRUE(std::isnan(portable_log(std::nan(""))));
  EXPECT_EQ(exp_of(1.0F), 2.71828182845904523536F);
  EXPECT_EQ(log_of(2.0F), 0.69314718055994530942F);
  EXPECT_TRUE(std::signbit(portable_sin(-0.0)));
  EXPECT_EQ(portable_cos(0), 1);
  EXPECT_TRUE(std::isnan(portable_cos(kInfinity)));
  EXPECT_TRUE(std::isnan(portable_sin(std::nan(""))));
  EXPECT_EQ(portable_erf(kInfinity), 1);
  EXPECT_EQ(portable_erf(-7), -1);
  EXPECT_TRUE(std::signbit(portable_erf(-0.0)));
  EXPECT_TRUE(std::isnan(portable_erf(std::nan(""))));
  EXPECT_EQ(portable_expm1(-kInfinity), -1);
  EXPECT_EQ(portable_expm1(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(portable_expm1(std::nan(""))));
}

}  // namespace
}  // namespace trafo
