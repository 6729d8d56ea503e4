// philox-inl.h, exp-inl.h and log-inl.h on every instruction set that this machine has.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/backend/cpu_random_exp_test.cc"
#include "engine/backend/cpu/simd.h"

#include "hwy/foreach_target.h"

#include "engine/backend/cpu/exp-inl.h"
#include "engine/backend/cpu/log-inl.h"
#include "engine/backend/cpu/philox-inl.h"

#include <cmath>
#include <limits>
#include <vector>

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {
namespace {

// Elements whose factor is not the one that dropout_keeps() says, and writes past the end.
template <class T>
int64_t wrong_factors() {
  int64_t wrong = 0;
  std::vector<T> factors(2001);
  const int64_t starts[] = {0, 1, 7, 8, 1000003, (int64_t{1} << 31) - 5, (int64_t{1} << 35) - 700};
  for (const float p : {0.0f, 0.1f, 0.5f, 0.999f, 0.999999f}) {
    const Dropout dropout{p, 0x123456789abcdef1ull, 17, 0xfffffff0u};
    for (const int64_t first : starts) {
      for (const int64_t count : {0, 1, 7, 8, 33, 127, 255, 256, 257, 2000}) {
        factors[static_cast<size_t>(count)] = 42;
        dropout_factors<T>(dropout, first, count, factors.data());
        wrong += factors[static_cast<size_t>(count)] != 42;
        for (int64_t i = 0; i < count; ++i) {
          const T expected =
              dropout_keeps(dropout, first + i) ? static_cast<T>(dropout.scale()) : T{0};
          wrong += factors[static_cast<size_t>(i)] != expected;
        }
      }
    }
  }
  return wrong;
}

template <class T>
T exp_of(T x) {
  const hn::ScalableTag<T> d;
  return hn::GetLane(exp_nonpositive(d, hn::Set(d, x)));
}

// Largest relative error over the normal range, in units of the last place.
template <class T>
double worst_ulps() {
  double worst = 0;
  for (T x = 0; x > (sizeof(T) == 4 ? T(-87.2) : T(-707.9)); x -= T(0.00317)) {
    const long double exact = std::exp(static_cast<long double>(x));
    const long double error = std::abs(static_cast<long double>(exp_of(x)) - exact) / exact;
    worst = std::max(worst, static_cast<double>(error / std::numeric_limits<T>::epsilon()));
  }
  return worst;
}

template <class T>
bool exp_edges_hold() {
  const T infinity = std::numeric_limits<T>::infinity();
  return exp_of<T>(0) == 1 && exp_of<T>(-0.0) == 1 && exp_of<T>(-infinity) == 0 &&
         exp_of<T>(std::numeric_limits<T>::lowest()) == 0 && exp_of<T>(-1000) == 0 &&
         std::isnan(exp_of<T>(std::numeric_limits<T>::quiet_NaN()));
}

// Logarithms whose bits are not those of portable_log().
int64_t wrong_logs() {
  const hn::ScalableTag<double> d;
  const auto log_of_lanes = [&](double x) { return hn::GetLane(log_normal(d, hn::Set(d, x))); };
  int64_t wrong = !std::isnan(log_of_lanes(std::numeric_limits<double>::quiet_NaN()));
  const auto check = [&](double x) { wrong += log_of_lanes(x) != portable_log(x); };
  for (double x = std::numeric_limits<double>::min(); x < 1e307; x *= 1.0173) check(x);
  for (float x = 1; x < 70; x += 0.00117f) check(static_cast<double>(x));
  check(portable_log_parts::kRootOfTwo);
  return wrong;
}

}  // namespace

struct Checks {
  int64_t wrong;
  double ulps;
  bool edges;
};
Checks run_checks() {
  return {wrong_factors<float>() + wrong_factors<double>() + wrong_logs(),
          std::max(worst_ulps<float>(), worst_ulps<double>()),
          exp_edges_hold<float>() && exp_edges_hold<double>()};
}

}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <gtest/gtest.h>

namespace trafo {
namespace {

template <class Checks>
void expect_good(const char* target, const Checks& checks) {
  EXPECT_EQ(checks.wrong, 0) << target;
  EXPECT_LT(checks.ulps, 2) << target;
  EXPECT_TRUE(checks.edges) << target;
}

#define TRAFO_CHECK_TARGET(target, space) \
  if (hwy::SupportedTargets() & target) expect_good(#target, space::run_checks())

TEST(CpuRandomExp, MasksExponentialsAndLogarithmsOnEveryTarget) {
#if HWY_TARGETS & HWY_SSE4
  TRAFO_CHECK_TARGET(HWY_SSE4, N_SSE4);
#endif
#if HWY_TARGETS & HWY_AVX2
  TRAFO_CHECK_TARGET(HWY_AVX2, N_AVX2);
#endif
#if HWY_TARGETS & HWY_AVX3
  TRAFO_CHECK_TARGET(HWY_AVX3, N_AVX3);
#endif
  expect_good("best target of the build", HWY_STATIC_DISPATCH(run_checks)());
}

}  // namespace
}  // namespace trafo
#endif
