#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/backend/simd_test.cc"
#include "engine/backend/cpu/simd.h"

#include "hwy/foreach_target.h"

#include "engine/backend/cpu/simd-inl.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "engine/backend/cpu/thread_pool.h"

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {
namespace {

// Runs as a block of the pool, so that it also covers lambdas that a kernel hands to parallel_for.
template <class T>
void check_helpers(ThreadPool& pool) {
  const double eps = std::numeric_limits<T>::epsilon();
  const auto inf = std::numeric_limits<T>::infinity();
  pool.parallel_for(70, [&](int64_t count) {
    // Exactly as long as it says: the sanitizer sees any access past the end.
    std::vector<T> x(static_cast<size_t>(count));
    std::vector<T> y(x.size());
    double sum_ref = 0, dot_ref = 0, max_ref = -std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = static_cast<T>(std::sin(0.7 * static_cast<double>(i * i) + 1.0) * 20.0);
      sum_ref += x[i];
      dot_ref += static_cast<double>(x[i]) * x[i];
      max_ref = std::max(max_ref, static_cast<double>(x[i]));
    }
    EXPECT_NEAR(sum(x.data(), count), sum_ref, 2000 * eps);
    EXPECT_NEAR(dot(x.data(), x.data(), count), dot_ref, 40000 * eps);
    EXPECT_EQ(max(x.data(), count), static_cast<T>(max_ref));
    map(x.data(), y.data(), count, [](auto d, auto v) { return exp(d, v); });
    for (size_t i = 0; i < x.size(); ++i) {
      const double ref = std::exp(static_cast<double>(x[i]));
      EXPECT_NEAR(y[i], ref, 8 * eps * ref) << x[i];
    }
    map(x.data(), y.data(), count, [](auto d, auto v) { return tanh(d, v); });
    for (size_t i = 0; i < x.size(); ++i)
      EXPECT_NEAR(y[i], std::tanh(static_cast<double>(x[i])), 8 * eps) << x[i];
    map(x.data(), y.data(), count, [](auto d, auto v) { return sigmoid(d, v); });
    for (size_t i = 0; i < x.size(); ++i)
      EXPECT_NEAR(y[i], 1.0 / (1.0 + std::exp(-static_cast<double>(x[i]))), 8 * eps) << x[i];
    map(x.data(), x.data(), y.data(), count, [](auto, auto v, auto w) { return hn::Add(v, w); });
    for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(y[i], 2 * x[i]);
  });

  const auto at = [](T value, auto f) {
    T result;
    map(&value, &result, 1, f);
    return result;
  };
  const auto exp_at = [&](T value) { return at(value, [](auto d, auto v) { return exp(d, v); }); };
  const auto tanh_at = [&](T value) {
    return at(value, [](auto d, auto v) { return tanh(d, v); });
  };
  EXPECT_TRUE(std::isnan(exp_at(std::numeric_limits<T>::quiet_NaN())));
  EXPECT_TRUE(std::isnan(tanh_at(std::numeric_limits<T>::quiet_NaN())));
  EXPECT_EQ(exp_at(0), T{1});
  EXPECT_EQ(exp_at(inf), inf);
  EXPECT_EQ(exp_at(static_cast<T>(1e30)), inf);
  EXPECT_EQ(exp_at(-inf), T{0});
  EXPECT_EQ(exp_at(static_cast<T>(-1e30)), T{0});
  EXPECT_EQ(tanh_at(inf), T{1});
  EXPECT_EQ(tanh_at(-inf), T{-1});
}

void check_all_helpers() {
  ThreadPool pool(2);
  check_helpers<float>(pool);
  check_helpers<double>(pool);
}

}  // namespace
}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trafo {
namespace {

HWY_EXPORT(check_all_helpers);

TEST(Simd, HelpersAreRightForEveryTargetOfThisMachine) {
  int tested = 0;
  for (int64_t rest = hwy::SupportedTargets() & HWY_TARGETS; rest != 0; rest &= rest - 1) {
    const int64_t target = rest & -rest;
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    EXPECT_STREQ(simd_target_name(), hwy::TargetName(target));
    HWY_DYNAMIC_DISPATCH(check_all_helpers)();
    ++tested;
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  EXPECT_GE(tested, 1);
  EXPECT_NO_THROW(require_supported_cpu());
}

TEST(Simd, ComputeTypesAreFloatAndDouble) {
  size_t size = 0;
  const auto take = [&size](auto zero) { size = sizeof(zero); };
  EXPECT_EQ(with_compute_type(DType::f32, take), 0);
  EXPECT_EQ(size, 4u);
  EXPECT_EQ(with_compute_type(DType::f64, take), 0);
  EXPECT_EQ(size, 8u);
  EXPECT_EQ(with_compute_type(DType::bf16, take), -1);
}

}  // namespace
}  // namespace trafo
#endif
