#include "engine/ops/activation/activation.h"

#include "tests/ops/row_test.h"

namespace trafo::testing {
namespace {

double exact(Activation kind, double x) {
  if (kind == Activation::relu) return x > 0 ? x : 0;
  if (kind == Activation::silu) return x / (1 + std::exp(-x));
  if (kind == Activation::gelu_erf) return 0.5 * x * std::erfc(-x * 0.70710678118654752440);
  return 0.5 * x * (1 + std::tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}

TEST(Activation, ValuesOfTheFormulas) {
  const auto context = cpu_context();
  for (const Activation kind :
       {Activation::relu, Activation::gelu, Activation::silu, Activation::gelu_erf}) {
    std::vector<float> x;
    for (float v = -12; v <= 12; v += 0.03125f) x.push_back(v);
    const int64_t count = static_cast<int64_t>(x.size());
    const Tensor y = ops::activation(*context, context->from_values<float>(x, {count}), kind);
    for (int64_t i = 0; i < count; ++i) {
      const double expected = exact(kind, x[static_cast<size_t>(i)]);
      EXPECT_NEAR(y.data<float>()[i], expected, 3e-7 * std::max(1.0, std::abs(expected)))
          << enum_name(kind) << " of " << x[static_cast<size_t>(i)];
    }
  }
}

// Digits of the tail that the absolute bound above does not see.
TEST(Activation, TheExactGeluOfNegativeNumbersKeepsItsDigits) {
  const auto context = cpu_context();
  std::vector<double> x;
  for (double v = -36; v < 36; v += 0x1p-7) x.push_back(v);
  const int64_t count = static_cast<int64_t>(x.size());
  const Tensor y =
      ops::activation(*context, context->from_values<double>(x, {count}), Activation::gelu_erf);
  const std::vector<float> narrow(x.begin(), x.end());
  const Tensor z =
      ops::activation(*context, context->from_values<float>(narrow, {count}), Activation::gelu_erf);
  for (int64_t i = 0; i < count; ++i) {
    const double v = x[static_cast<size_t>(i)];
    // In long double, because an error of erfc's argument is v^2 times as large in its value.
    const auto expected =
        static_cast<double>(0.5L * v * std::erfc(-v * 0.707106781186547524400844L));
    EXPECT_NEAR(y.data<double>()[i], expected, 8 * 0x1p-53 * std::abs(expected)) << v;
    if (v <= -13) continue;  // float32 has no smaller normal number
    EXPECT_NEAR(z.data<float>()[i], expected, 8 * 0x1p-24 * std::abs(expected)) << v;
  }
}

// s (1 - s) of a sigmoid near 1 must not lose its digits: the gradient multiplies it with x and
// more.
TEST(Activation, GradientsOfTheFormulas) {
  const auto context = cpu_context();
  for (const Activation kind : {Activation::gelu, Activation::silu, Activation::gelu_erf}) {
    std::vector<float> values;
    for (float v = -12; v <= 12; v += 0.03125f) values.push_back(v);
    const int64_t count = static_cast<int64_t>(values.size());
    Tensor x = context->from_values<float>(values, {count});
    set_requires_grad(x, true);
    const Tensor y = ops::activation(*context, x, kind);
    context->backward(y, filled(*context, {count}, 1));
    for (int64_t i = 0; i < count; ++i) {
      const double v = values[static_cast<size_t>(i)], step = 1e-4;
      const double expected = (8 * (exact(kind, v + step) - exact(kind, v - step)) -
                               (exact(kind, v + 2 * step) - exact(kind, v - 2 * step))) /
                              (12 * step);
      EXPECT_NEAR(grad_of(x).data<float>()[i], expected, 2.5e-7) << enum_name(kind) << " at " << v;
    }
  }
}

TEST(Activation, EveryRank) {
  const auto context = cpu_context();
  for (const Shape& shape : {Shape{}, Shape{3}, Shape{1, 2, 1, 2, 1, 2, 1, 2}, Shape{2, 0, 3}})
    for (const Activation kind :
         {Activation::relu, Activation::gelu, Activation::silu, Activation::gelu_erf}) {
      std::vector<double> results[2];
      for (const bool fused : {true, false}) {
        context->set_fused_kernels(fused);
        InputMaker make(*context, DType::f64, 1);
        Tensor x = make.uniform(shape);
        set_requires_grad(x, true);
        const Tensor y = ops::activation(*context, x, kind);
        EXPECT_EQ(y.shape(), shape);
        context->backward(y, make.uniform(shape));
        results[fused] = doubles(y);
        const auto gradient = doubles(grad_of(x));
        results[fused].insert(results[fused].end(), gradient.begin(), gradient.end());
      }
      EXPECT_LT(relative_error(results[1], results[0]), 1e-14)
          << enum_name(kind) << " " << shape.str();
    }
}

TEST(Activation, ExtremeValuesGiveFiniteGradients) {
  const auto context = cpu_context();
  for (const Activation kind :
       {Activation::relu, Activation::gelu, Activation::silu, Activation::gelu_erf}) {
    const std::vector<float> extremes{-3e38f, -1e20f, -1e4f, -100, -0.0f, 100, 1e4f, 1e20f, 3e38f};
    const int64_t count = static_cast<int64_t>(extremes.size());
    Tensor x = context->from_values<float>(extremes, {count});
    set_requires_grad(x, true);
    const Tensor y = ops::activation(*context, x, kind);
    context->backward(y, filled(*context, {count}, 1));
    for (int64_t i = 0; i < count; ++i) {
      const float v = extremes[static_cast<size_t>(i)];
      EXPECT_EQ(y.data<float>()[i], v > 0 ? v : 0) << enum_name(kind) << " of " << v;
      const float expected = v == 0  ? (kind == Activation::relu ? 0.0f : 0.5f)
                             : v > 0 ? 1.0f
                                     : 0.0f;
      EXPECT_EQ(grad_of(x).data<float>()[i], expected) << enum_name(kind) << " at " << v;
    }
  }
}

TEST(Activation, NaNStaysNaN) {
  const auto context = cpu_context();
  for (const Activation kind :
       {Activation::relu, Activation::gelu, Activation::silu, Activation::gelu_erf}) {
    Tensor x = filled(*context, {3}, std::nanf(""));
    set_requires_grad(x, true);
    const Tensor y = ops::activation(*context, x, kind);
    for (const float v : context->values<float>(y)) EXPECT_TRUE(std::isnan(v));
    context->backward(y, filled(*context, {3}, 1));
    if (kind == Activation::relu) continue;  // its gradient is 1 there, as PyTorch's
    for (const float v : context->values<float>(grad_of(x))) EXPECT_TRUE(std::isnan(v));
  }
}

TEST(Activation, Errors) {
  const auto context = cpu_context();
  Context& c = *context;
  expect_error(ErrorCode::invalid_argument,
               "must be relu (0), gelu (1), silu (2) or gelu_erf (3), got 7",
               [&] { ops::activation(c, filled(c, {3}, 1), static_cast<Activation>(7)); });
  expect_error(ErrorCode::dtype_mismatch, "must be float32 or float64",
               [&] { ops::activation(c, c.zeros({3}, DType::i32), Activation::relu); });
  EXPECT_STREQ(enum_name(Activation::gelu), "gelu");
  EXPECT_STREQ(enum_name(static_cast<Activation>(9)), "unknown");
}

}  // namespace
}  // namespace trafo::testing
