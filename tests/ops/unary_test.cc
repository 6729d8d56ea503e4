#include "engine/ops/unary/unary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/ops/op_kernel.h"
#include "tests/support/errors.h"

namespace trafo {
namespace {

template <class T>
void expect_like_libm(double tolerance) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  constexpr T inf = std::numeric_limits<T>::infinity();
  constexpr T nan = std::numeric_limits<T>::quiet_NaN();
  const std::vector<T> x = {0,  T(1e-30), T(0.5), 1,   T(2.5), 80, 1000,
                            -1, -20,      -1000,  inf, -inf,   nan};
  const Tensor input = context->from_values<T>(x, {static_cast<int64_t>(x.size())});
  const auto check = [&](const char* name, const Tensor& y, auto reference) {
    for (size_t i = 0; i < x.size(); ++i) {
      const double actual = static_cast<double>(y.template data<T>()[i]);
      const double expected =
          static_cast<double>(static_cast<T>(reference(static_cast<double>(x[i]))));
      if (std::isnan(expected))
        EXPECT_TRUE(std::isnan(actual)) << name << "(" << x[i] << ") = " << actual;
      else if (std::isinf(expected) || expected == 0)
        EXPECT_EQ(actual, expected) << name << "(" << x[i] << ")";
      else
        EXPECT_NEAR(actual / expected, 1, tolerance) << name << "(" << x[i] << ")";
    }
  };
  check("log", ops::log(*context, input), [](double v) { return std::log(v); });
  check("sqrt", ops::sqrt(*context, input), [](double v) { return std::sqrt(v); });
  check("exp", ops::exp(*context, input), [](double v) { return std::exp(v); });
  check("tanh", ops::tanh(*context, input), [](double v) { return std::tanh(v); });
  check("scale", ops::scale(*context, input, 0.75), [](double v) { return 0.75 * v; });
  check("soft_cap", ops::soft_cap(*context, input, 30),
        [](double v) { return 30 * std::tanh(v / 30); });
  check("shift", ops::shift(*context, input, 0.75), [](double v) { return v + 0.75; });
}

TEST(Unary, SpecialValuesInFloat32) {
  expect_like_libm<float>(1e-6);
}
TEST(Unary, SpecialValuesInFloat64) {
  expect_like_libm<double>(1e-14);
}

TEST(Unary, BadInputIsNamed) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  expect_error(ErrorCode::invalid_argument, "x is undefined", [&] { ops::exp(*context, {}); });
  expect_error(ErrorCode::dtype_mismatch, "x must be float32 or float64, it is int32",
               [&] { ops::exp(*context, context->zeros({3}, DType::i32)); });
  for (const double cap : {0.0, -1.0, HUGE_VAL})
    expect_error(ErrorCode::invalid_argument, "cap must be finite and above 0",
                 [&] { ops::soft_cap(*context, context->zeros({3}, DType::f32), cap); });
}

TEST(Unary, SigmoidSaturatesWithoutOverflow) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const std::vector<float> x = {-1000, -50, 0, 50, 1000};
  const Tensor y = ops::sigmoid(*context, context->from_values<float>(x, {5}));
  EXPECT_EQ(y.data<float>()[0], 0);
  EXPECT_NEAR(y.data<float>()[1] / std::exp(-50.0), 1, 1e-5);
  EXPECT_EQ(y.data<float>()[2], 0.5f);
  EXPECT_EQ(y.data<float>()[3], 1);
  EXPECT_EQ(y.data<float>()[4], 1);
}

}  // namespace
}  // namespace trafo
