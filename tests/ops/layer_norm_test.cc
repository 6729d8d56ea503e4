#include "engine/ops/layer_norm/layer_norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/ops/op_kernel.h"
#include "tests/ops/row_test.h"
#include "tests/support/cpu_targets.h"

namespace trafo::testing {
namespace {

// Largest error (relative above 1) of float32 layer norm of `x` rows, gamma 1 and beta 0, against
// long double arithmetic.
double worst_error(const std::vector<float>& x, int64_t rows, int64_t width) {
  const auto context = cpu_context();
  const std::vector<float> one(static_cast<size_t>(width), 1), zero(static_cast<size_t>(width), 0);
  const Tensor y = ops::layer_norm(*context, context->from_values<float>(x, {rows, width}),
                                   context->from_values<float>(one, {width}),
                                   context->from_values<float>(zero, {width}), 1e-5);
  double worst = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const float* in = x.data() + row * width;
    long double mean = 0, variance = 0;
    for (int64_t i = 0; i < width; ++i) mean += in[i];
    mean /= width;
    for (int64_t i = 0; i < width; ++i) variance += (in[i] - mean) * (in[i] - mean);
    const long double rstd = 1 / std::sqrt(variance / width + 1e-5L);
    for (int64_t i = 0; i < width; ++i) {
      const double expected = static_cast<double>((in[i] - mean) * rstd);
      const double error =
          std::abs(y.data<float>()[row * width + i] - expected) / std::max(1.0, std::abs(expected));
      if (!(error <= worst)) worst = error;
    }
  }
  return worst;
}

std::vector<float> normal_rows(int64_t count, double mean) {
  PhiloxStream random(3, 1);
  std::vector<float> x(static_cast<size_t>(count));
  for (float& v : x) v = static_cast<float>(mean + random.normal());
  return x;
}

TEST(LayerNorm, LargeMeansDoNotCancel) {
  for (const double mean : {0.0, 100.0, 1e4, -1e6})
    EXPECT_LT(worst_error(normal_rows(7 * 512, mean), 7, 512), 5e-6) << "mean " << mean;
}

TEST(LayerNorm, FirstElementFarFromTheOthers) {
  for (const float outlier : {1e2f, 1e4f, -1e6f}) {
    std::vector<float> x = normal_rows(3 * 1024, 0);
    for (size_t row = 0; row < 3; ++row) x[row * 1024] = outlier;
    EXPECT_LT(worst_error(x, 3, 1024), 1e-5) << "outlier " << outlier;
  }
}

// The shift that the sums are made with is not one element: where that is two deviations from the
// mean, the variance would cancel.
TEST(LayerNorm, FirstElementTwoDeviationsAway) {
  std::vector<float> x = normal_rows(200 * 64, 0);
  for (size_t row = 0; row < 200; ++row) x[row * 64] = row % 2 ? 2.2f : -2.2f;
  for_each_target([&] { EXPECT_LT(worst_error(x, 200, 64), 4e-7); });
}

// Then the shift is far from nearly all elements, and their squares cancel against its own.
TEST(LayerNorm, FirstVectorFarFromTheOthers) {
  for (const int64_t width : {16384, 65536}) {
    std::vector<float> x = normal_rows(3 * width, 0);
    for (int64_t row = 0; row < 3; ++row)
      for (int64_t i = 0; i < 16; ++i) x[static_cast<size_t>(row * width + i)] += 1e3f;
    // Squares cancel to an eighth before the kernel sums again (x 8), the root halves it, and sums
    // of the shortest vectors, four lanes, round width / 4 times, now up and now down.
    const double bound = 4 * std::ldexp(1.0, -24) * std::sqrt(static_cast<double>(width) / 4);
    for_each_target([&] { EXPECT_LT(worst_error(x, 3, width), bound) << "width " << width; });
  }
}

TEST(LayerNorm, WidthsAroundTheVectorLengthAndLongRows) {
  for (const int64_t width : {1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 65, 1000, 1001, 4097, 50257})
    EXPECT_LT(worst_error(normal_rows(3 * width, 0.5), 3, width), 5e-6) << "width " << width;
}

TEST(LayerNorm, ConstantRowsGiveBeta) {
  const auto context = cpu_context();
  for (const bool fused : {true, false})
    for (const int64_t width : {1, 3, 37, 1000, 5003})
      for (const float value : {0.1f, 12345.678f, -3e7f, 3e20f, 1e30f}) {
        context->set_fused_kernels(fused);
        const Tensor x = filled(*context, {4, width}, value);
        const Tensor y = ops::layer_norm(*context, x, filled(*context, {width}, 2),
                                         filled(*context, {width}, 3));
        for (const float v : context->values<float>(y))
          ASSERT_NEAR(v, 3, fused ? 0 : 1e-6)
              << (fused ? "fused, " : "reference, ") << width << " times " << value;
      }
}

TEST(LayerNorm, NaNStaysInItsRow) {
  const auto context = cpu_context();
  Tensor x = filled(*context, {3, 20}, 1);
  x.data<float>()[25] = std::nanf("");
  const Tensor y =
      ops::layer_norm(*context, x, filled(*context, {20}, 1), filled(*context, {20}, 0));
  for (int64_t i = 0; i < 60; ++i)
    EXPECT_EQ(std::isnan(y.data<float>()[i]), i / 20 == 1) << "element " << i;
}

TEST(LayerNorm, ErrorsNameTheInput) {
  const auto context = cpu_context();
  Context& c = *context;
  const Tensor x = filled(c, {2, 4}, 1), good = filled(c, {4}, 1);
  expect_error(ErrorCode::shape_mismatch, "gamma must be [4]",
               [&] { ops::layer_norm(c, x, filled(c, {5}, 1), good); });
  expect_error(ErrorCode::shape_mismatch, "beta must be [4]", [&] {
    ops::layer_norm(c, x, good, filled(c, {2, 2}, 1));
  });
  expect_error(ErrorCode::shape_mismatch, "last dimension of at least 1", [&] {
    ops::layer_norm(c, c.zeros({3, 0}, DType::f32), good, good);
  });
  expect_error(ErrorCode::dtype_mismatch, "gamma is float64",
               [&] { ops::layer_norm(c, x, c.zeros({4}, DType::f64), good); });
  expect_error(ErrorCode::dtype_mismatch, "cast to float32 first: bfloat16 is a storage type", [&] {
    ops::layer_norm(c, c.zeros({2, 4}, DType::bf16), good, good);
  });
  expect_error(ErrorCode::dtype_mismatch, "must be float32 or float64, it is int32", [&] {
    ops::layer_norm(c, c.zeros({2, 4}, DType::i32), good, good);
  });
  expect_error(ErrorCode::invalid_argument, "epsilon must lie between 0 and 1",
               [&] { ops::layer_norm(c, x, good, good, 0); });
  expect_error(ErrorCode::invalid_argument, "epsilon",
               [&] { ops::layer_norm(c, x, good, good, NAN); });
  expect_error(ErrorCode::invalid_argument, "x is undefined",
               [&] { ops::layer_norm(c, Tensor{}, good, good); });
}

// 4096 rows: many partial sums. Gradients of float32 against the reference path in float64.
TEST(LayerNorm, GradientsOfManyRows) {
  for (const int64_t width : {33, 128}) {
    const int64_t rows = 4096;
    std::vector<std::vector<double>> grads[2];
    for (const bool reference : {false, true}) {
      const auto context = cpu_context(2);
      context->set_fused_kernels(!reference);
      const DType dtype = reference ? DType::f64 : DType::f32;
      InputMaker make(*context, dtype, 4);
      std::vector<Tensor> in{make.uniform({rows, width}), make.uniform({width}),
                             make.uniform({width})};
      for (Tensor& t : in) set_requires_grad(t, true);
      const Tensor y = ops::layer_norm(*context, in[0], in[1], in[2]);
      context->backward(y, make.uniform({rows, width}));
      for (const Tensor& t : in) grads[reference].push_back(doubles(grad_of(t)));
    }
    for (size_t i = 0; i < 3; ++i)
      EXPECT_LT(relative_error(grads[0][i], grads[1][i]), 2e-6) << "input " << i;
  }
}

}  // namespace
}  // namespace trafo::testing
