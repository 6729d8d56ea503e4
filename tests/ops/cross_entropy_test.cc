#include "engine/ops/cross_entropy/cross_entropy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/ops/op_kernel.h"
#include "engine/ops/reduce/reduce.h"
#include "tests/support/errors.h"

namespace trafo {
namespace {

class CrossEntropyTest : public ::testing::Test {
 protected:
  Tensor logits(std::vector<float> values, int64_t rows) {
    const int64_t classes = static_cast<int64_t>(values.size()) / rows;
    return context_->from_values<float>(values, {rows, classes});
  }
  Tensor labels(std::vector<int32_t> values) {
    return context_->from_values<int32_t>(values, {static_cast<int64_t>(values.size())});
  }
  std::vector<double> doubles(const Tensor& tensor) {
    if (tensor.dtype() == DType::f64) return context_->values<double>(tensor);
    const std::vector<float> values = context_->values<float>(tensor);
    return {values.begin(), values.end()};
  }
  std::unique_ptr<Context> context_ = make_context({DeviceKind::cpu, 0}, 2);
};

TEST_F(CrossEntropyTest, NamesWhatIsWrong) {
  const Tensor x = logits({1, 2, 3, 4}, 2);
  using enum ErrorCode;
  expect_error(invalid_argument, "label 2 of row 1", [&] {
    ops::cross_entropy(*context_, x, labels({0, 2}));
  });
  expect_error(invalid_argument, "label -1 of row 0", [&] {
    ops::cross_entropy(*context_, x, labels({-1, 0}));
  });
  expect_error(shape_mismatch, "one for each row",
               [&] { ops::cross_entropy(*context_, x, labels({0})); });
  expect_error(invalid_argument, "label_smoothing", [&] {
    ops::cross_entropy(*context_, x, labels({0, 0}), {.label_smoothing = 1});
  });
  expect_error(invalid_argument, "weight -1 of row 1", [&] {
    ops::CrossEntropyOptions options;
    options.weights = context_->from_values<float>(std::vector<float>{1, -1}, {2});
    ops::cross_entropy(*context_, x, labels({0, 0}), options);
  });
  expect_error(dtype_mismatch, "cast to float32 first", [&] {
    ops::cross_entropy(*context_, context_->empty({1, 2}, DType::bf16), labels({0}));
  });
}

TEST_F(CrossEntropyTest, MeanDividesByTheWeightsThatCount) {
  const Tensor x = logits({0, 0, 0, 0, 0, 0}, 3);  // each row: log 2
  ops::CrossEntropyOptions options;
  options.weights = context_->from_values<float>(std::vector<float>{3, 100, 1}, {3});
  options.label_smoothing = 0.3;
  const auto out = ops::cross_entropy(*context_, x, labels({0, -100, 1}), options);
  EXPECT_NEAR(context_->item(out.loss), std::log(2.0), 1e-6);
  EXPECT_NEAR(context_->item(out.nll), std::log(2.0), 1e-6);
  const auto nothing = ops::cross_entropy(*context_, x, labels({-100, -100, -100}));
  EXPECT_EQ(context_->item(nothing.loss), 0);
}

TEST_F(CrossEntropyTest, ProbabilitiesOfOneClassAreItsLabel) {
  const float infinity = std::numeric_limits<float>::infinity();
  const Tensor x = logits({0, 2, -1, 3, 1, -infinity}, 2), classes = labels({2, 0}),
               targets = logits({0, 0, 1, 1, 0, 0}, 2);
  ops::CrossEntropyOptions options;
  options.weights = context_->from_values<float>(std::vector<float>{3, 2}, {2});
  for (const Reduction reduction : {Reduction::none, Reduction::sum, Reduction::mean}) {
    options.reduction = reduction;
    const auto expected = doubles(ops::cross_entropy(*context_, x, classes, options).loss);
    const auto got = doubles(ops::soft_cross_entropy(*context_, x, targets, options));
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-6) << i;
  }
  // A class with mass whose logit is -infinity is impossible.
  EXPECT_EQ(context_->item(ops::soft_cross_entropy(*context_, x, logits({1, 0, 0, 0, 0, 1}, 2))),
            infinity);
}

TEST_F(CrossEntropyTest, ClassWeightsAndProbabilitiesAreChecked) {
  using enum ErrorCode;
  const Tensor x = logits({0, 0, 0, 0}, 2), of_class = logits({1, 1}, 1);
  ops::CrossEntropyOptions options;
  options.class_weights = of_class;
  expect_error(shape_mismatch, "the class weights must be [2], got [1, 2]", [&] {
    ops::cross_entropy(*context_, x, labels({0, 1}), options);
  });
  options.class_weights = labels({1, 1});
  expect_error(dtype_mismatch, "the class weights are int32", [&] {
    ops::cross_entropy(*context_, x, labels({0, 1}), options);
  });
  for (const float bad : {-1.0f, std::numeric_limits<float>::infinity()}) {
    options.class_weights = context_->from_values<float>(std::vector<float>{1, bad}, {2});
    expect_error(invalid_argument, "of class 1 is negative or not finite", [&] {
      ops::cross_entropy(*context_, x, labels({0, 1}), options);
    });
    expect_error(invalid_argument, "of class 1 is negative or not finite",
                 [&] { ops::soft_cross_entropy(*context_, x, x, options); });
  }
  options.class_weights = context_->from_values<float>(std::vector<float>{1, 1}, {2});
  expect_error(invalid_argument, "label 2", [&] {
    ops::cross_entropy(*context_, x, labels({0, 2}), options);
  });
  expect_error(shape_mismatch, "the targets are [1, 2], the logits [2, 2]",
               [&] { ops::soft_cross_entropy(*context_, x, of_class); });
  expect_error(dtype_mismatch, "the targets are float64", [&] {
    ops::soft_cross_entropy(*context_, x, context_->zeros({2, 2}, DType::f64));
  });
}

TEST_F(CrossEntropyTest, NllLeavesSmoothingOut) {
  Tensor x = logits({1, 2, 4}, 1);
  set_requires_grad(x, true);
  const auto out = ops::cross_entropy(*context_, x, labels({1}), {.label_smoothing = 0.6});
  const double lse = std::log(std::exp(1.0) + std::exp(2.0) + std::exp(4.0));
  EXPECT_NEAR(context_->item(out.nll), lse - 2, 1e-6);
  EXPECT_NEAR(context_->item(out.loss), 0.4 * (lse - 2) + 0.6 * (lse - 7.0 / 3), 1e-6);
  EXPECT_FALSE(requires_grad(out.nll));
}

// As PyTorch: a class of -infinity has probability 0, and is an infinite loss as a label or with
// smoothing. Rows that are ignored count for nothing, whatever they hold.
TEST_F(CrossEntropyTest, InfiniteLogits) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const bool fused : {true, false}) {
    SCOPED_TRACE(fused ? "fused" : "reference");
    context_->set_fused_kernels(fused);
    Tensor x = logits({-infinity, 1, 1, 0, -infinity, 1}, 2);
    set_requires_grad(x, true);
    const auto masked =
        ops::cross_entropy(*context_, x, labels({1, 2}), {.reduction = Reduction::none});
    const double p = 1 / (1 + std::exp(-1.0));
    EXPECT_NEAR(context_->values<float>(masked.loss)[0], std::log(2.0), 1e-6);
    EXPECT_NEAR(context_->values<float>(masked.loss)[1], -std::log(p), 1e-6);
    context_->backward(ops::sum(*context_, masked.loss));
    const std::vector<double> gradient = doubles(grad_of(x)),
                              expected{0, -0.5, 0.5, 1 - p, 0, p - 1};
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(gradient[i], expected[i], 1e-6) << i;

    for (const double smoothing : {0.0, 0.1}) {
      const auto impossible =
          ops::cross_entropy(*context_, logits({0, -infinity, 1}, 1),
                             labels({smoothing > 0 ? 0 : 1}), {.label_smoothing = smoothing});
      EXPECT_EQ(context_->item(impossible.loss), infinity) << smoothing;
    }
    for (const float bad : {infinity, nan}) {
      const auto out = ops::cross_entropy(*context_, logits({1, bad, 1}, 1), labels({0}));
      EXPECT_FALSE(std::isfinite(context_->item(out.loss))) << bad;
    }
    for (const float ignored : {infinity, -infinity, nan})
      for (const double smoothing : {0.0, 0.1}) {
        Tensor rows = logits({0, 0, ignored, 1}, 2);
        set_requires_grad(rows, true);
        ops::CrossEntropyOptions options{.label_smoothing = smoothing};
        options.weights = context_->from_values<float>(std::vector<float>{2, nan}, {2});
        const auto out = ops::cross_entropy(*context_, rows, labels({0, -100}), options);
        EXPECT_NEAR(context_->item(out.loss), std::log(2.0), 1e-6) << ignored;
        EXPECT_NEAR(context_->item(out.nll), std::log(2.0), 1e-6) << ignored;
        context_->backward(out.loss);
        const std::vector<double> g = doubles(grad_of(rows));
        EXPECT_NEAR(g[0], -0.5 * (1 - smoothing), 1e-6);
        EXPECT_NEAR(g[1], 0.5 * (1 - smoothing), 1e-6);
        EXPECT_EQ(g[2], 0) << ignored;
        EXPECT_EQ(g[3], 0) << ignored;
      }
  }
}

// The log-sum rounded to float32 is off by up to 2e-6 here, and with it every probability.
TEST_F(CrossEntropyTest, LargeLogitsKeepTheDigitsOfTheirProbabilities) {
  const int64_t rows = 50, classes = 8;
  std::vector<float> values(static_cast<size_t>(rows * classes));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = 38 + static_cast<float>((i * 37) % 101) * 0.019f;
  Tensor x = logits(values, rows);
  set_requires_grad(x, true);
  const auto out =
      ops::cross_entropy(*context_, x, labels(std::vector<int32_t>(static_cast<size_t>(rows), 3)),
                         {.reduction = Reduction::sum});
  context_->backward(out.loss);
  const std::vector<float> gradient = context_->values<float>(grad_of(x));
  for (int64_t t = 0; t < rows; ++t) {
    const auto first = static_cast<size_t>(t * classes);
    double sum = 0;
    for (size_t c = 0; c < classes; ++c) sum += std::exp(static_cast<double>(values[first + c]));
    for (size_t c = 0; c < classes; ++c)
      EXPECT_NEAR(gradient[first + c],
                  std::exp(static_cast<double>(values[first + c])) / sum - (c == 3 ? 1 : 0),
                  1.5e-7);
  }
}

// Where float32 and float64 have no room for the log of the sum beside the logits.
TEST_F(CrossEntropyTest, HugeLogits) {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const double huge : {1000.0, 2000.0, 1e15, 1e30, 3e38, -1e30}) {
      const bool wide = dtype == DType::f64;
      const double near = wide ? 4e-15 : 1e-6, gradient_near = wide ? 4e-15 : 1.5e-7;
      const std::vector<double> values{huge, huge,  huge, huge,     huge,
                                       huge, -huge, huge, huge / 2, huge};
      Tensor x = context_->from_doubles(values, {2, 5}, dtype);
      set_requires_grad(x, true);
      const auto out = ops::cross_entropy(*context_, x, labels({1, 0}),
                                          {.label_smoothing = 0.2, .reduction = Reduction::none});
      // Rows of five equal logits, and of three that are equal where they are the largest.
      EXPECT_NEAR(doubles(out.nll)[0], std::log(5.0), near) << huge;
      EXPECT_NEAR(doubles(out.loss)[0], std::log(5.0), near) << huge;
      context_->backward(ops::sum(*context_, out.loss));
      const std::vector<double> gradient = doubles(grad_of(x));
      for (size_t c = 0; c < 5; ++c)
        EXPECT_NEAR(gradient[c], 0.2 - 0.2 / 5 - (c == 1 ? 0.8 : 0), gradient_near) << huge;
      if (huge < 0) continue;
      EXPECT_NEAR(doubles(out.nll)[1], std::log(3.0), near) << huge;
      const double spread = huge * (2 + 0.5) / 5;
      EXPECT_NEAR(doubles(out.loss)[1] / (std::log(3.0) + 0.2 * spread), 1, near) << huge;
      for (size_t c = 0; c < 5; ++c)
        EXPECT_NEAR(gradient[5 + c],
                    (c == 1 || c == 3 ? 0 : 1.0 / 3) - 0.2 / 5 - (c == 0 ? 0.8 : 0), gradient_near)
            << huge;
    }
}

TEST_F(CrossEntropyTest, LongRowsWithALargeMean) {
  const int64_t classes = 100003;
  std::vector<float> values(static_cast<size_t>(classes));
  for (size_t c = 0; c < values.size(); ++c)
    values[c] = 1000 + static_cast<float>(c % 97) * 0.0625f;
  double sum = 0;
  for (const float v : values) sum += std::exp(static_cast<double>(v) - 1000);
  Tensor x = logits(values, 1);
  set_requires_grad(x, true);
  const auto out = ops::cross_entropy(*context_, x, labels({100002}));
  const double expected = std::log(sum) + 1000 - static_cast<double>(values.back());
  EXPECT_NEAR(context_->item(out.loss), expected, 1e-4);  // a float near 1000 has steps of 6e-5
  context_->backward(out.loss);
  double total = 0;
  for (const float g : context_->values<float>(grad_of(x))) total += static_cast<double>(g);
  EXPECT_NEAR(total, 0, 1e-4);
}

}  // namespace
}  // namespace trafo
