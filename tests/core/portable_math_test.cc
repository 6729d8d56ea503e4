#include "engine/core/numeric/portable_math.h"

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

// A host's library rounds a hundredth of the results another way.
TEST(PortableMath, HasTheSameBitsOnEverySystem) {
  EXPECT_EQ(hash_of_bits(numbers_between(-745, 709), portable_exp), 0xcd216a221a23a2f8u);
  EXPECT_EQ(hash_of_bits(numbers_between(0, 1000), portable_log), 0x4ce522e02eb93e19u);
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
}

}  // namespace
}  // namespace trafo
