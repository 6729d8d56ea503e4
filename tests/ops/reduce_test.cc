#include "engine/ops/reduce/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/ops/op_kernel.h"
#include "tests/ops/op_cases.h"

namespace trafo::testing {
namespace {

TEST(Reduce, LongRowsKeepTheirDigits) {
  const auto context = make_context({DeviceKind::cpu, 0}, 2);
  constexpr int64_t count = 3'000'001;
  const std::vector<float> values(count, 0.1f);
  const Tensor x = context->from_values<float>(values, {count});
  const double exact = static_cast<double>(0.1f) * count;
  // A run of 512 is added in float32: every lane of two accumulators adds up 256 / lanes elements,
  // and loses at most half as many half-ulps (6e-8): 4.8e-7 with 16 lanes, 9.5e-7 with 8. Added up
  // in one float32 it would be 1e-2.
  EXPECT_NEAR(context->item(ops::sum(*context, x)) / exact, 1, 1e-6);
  EXPECT_NEAR(context->item(ops::mean(*context, x)), 0.1f, 1e-7);
}

TEST(Reduce, LargeShapesAgreeWithTheDefinitionForEveryThreadCount) {
  struct Case {
    int64_t outer, size, inner;
  };
  for (const auto [outer, size, inner] :
       {Case{3, 70001, 1}, Case{2, 1100, 513}, Case{70, 257, 33}, Case{1, 5, 20000}}) {
    std::vector<float> first_sum;
    for (const int threads : {1, 2, 5}) {
      const auto context = make_context({DeviceKind::cpu, 0}, threads);
      InputMaker maker(*context, DType::f32, 5);
      const Tensor x = maker.uniform({outer, size, inner});
      const auto sums = context->values<float>(ops::sum(*context, x, 1));
      const auto largest = context->values<float>(ops::max(*context, x, 1));
      if (threads == 1) {
        first_sum = sums;
        for (int64_t o = 0; o < outer; ++o)
          for (int64_t i = 0; i < inner; ++i) {
            double total = 0;
            float top = -2;
            for (int64_t s = 0; s < size; ++s) {
              const float v = x.data<float>()[(o * size + s) * inner + i];
              total += static_cast<double>(v);
              top = std::max(top, v);
            }
            const size_t at = static_cast<size_t>(o * inner + i);
            ASSERT_NEAR(sums[at], total, 1e-5 * std::sqrt(static_cast<double>(size)) + 1e-6);
            ASSERT_EQ(largest[at], top);
          }
      }
      EXPECT_EQ(sums, first_sum) << threads << " threads";
    }
  }
}

TEST(Reduce, MaximumPropagatesNanAndSendsItsGradientToTheFirst) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {1, 3, 3, -inf, -inf, -inf, 2, nan, 5, inf, nan, 0};
  Tensor x = context->from_values<float>(values, {4, 3});
  set_requires_grad(x, true);
  const Tensor y = ops::max(*context, x, 1);
  EXPECT_EQ(y.data<float>()[0], 3);
  EXPECT_EQ(y.data<float>()[1], -inf);
  EXPECT_TRUE(std::isnan(y.data<float>()[2]));
  EXPECT_TRUE(std::isnan(y.data<float>()[3]));
  context->backward(y, context->from_values<float>(std::vector<float>{1, 2, 3, 4}, {4}));
  EXPECT_EQ(context->values<float>(grad_of(x)),
            (std::vector<float>{0, 1, 0, 2, 0, 0, 0, 3, 0, 0, 4, 0}));
}

TEST(Reduce, MaximumPropagatesNanFromEveryPlace) {
  const auto context = make_context({DeviceKind::cpu, 0}, 2);
  for (const Shape& shape : {Shape{1, 100, 1}, Shape{1, 20000, 1}, Shape{1, 300, 70}})
    for (int64_t at = 0; at < element_count(shape); at += 97) {
      Tensor x = context->zeros(shape, DType::f32);
      x.data<float>()[at] = std::numeric_limits<float>::quiet_NaN();
      const Tensor y = ops::max(*context, x, 1);
      for (int64_t i = 0; i < shape[2]; ++i)
        ASSERT_EQ(std::isnan(y.data<float>()[i]), i == at % shape[2]) << shape.str() << " " << at;
    }
}

TEST(Reduce, NothingToReduce) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const Tensor x = context->zeros({3, 0}, DType::f32);
  EXPECT_EQ(context->values<float>(ops::sum(*context, x, 1)), (std::vector<float>(3, 0.0f)));
  EXPECT_THROW(ops::max(*context, x, 1), Error);
  EXPECT_THROW(ops::mean(*context, x), Error);
  EXPECT_THROW(ops::sum(*context, x, 2), Error);
}

TEST(ColumnSum, AddsInAFixedOrder) {
  for (const auto& [rows, width] :
       {std::pair<int64_t, int64_t>{0, 3}, {1, 1}, {700, 5}, {257, 1030}}) {
    std::vector<double> first;
    for (const int threads : {1, 3}) {
      const auto context = make_context({DeviceKind::cpu, 0}, threads);
      InputMaker maker(*context, DType::f64, 3);
      const Tensor x = maker.uniform({rows, width});
      const Tensor out = maker.uniform({width});
      const auto before = context->values<double>(out);
      launch(*context, OpKernel::column_sum, "test",
             ColumnSumParams{DType::f64, true, rows, width, x.raw(), out.raw()});
      const auto after = context->values<double>(out);
      for (int64_t j = 0; j < width; ++j) {
        double total = before[static_cast<size_t>(j)];
        for (int64_t i = 0; i < rows; ++i) total += x.data<double>()[i * width + j];
        ASSERT_NEAR(after[static_cast<size_t>(j)], total, 1e-11);
      }
      if (threads == 1) first = after;
      EXPECT_EQ(after, first);
    }
  }
}

}  // namespace
}  // namespace trafo::testing
