#include "engine/ops/distillation/distillation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "engine/ops/linear_cross_entropy/linear_cross_entropy.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/op_kernel.h"
#include "tests/ops/op_cases.h"
#include "tests/support/errors.h"

namespace trafo::testing {
namespace {

using Doubles = std::vector<double>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class DistillationTest : public ::testing::Test {
 protected:
  Tensor doubles(const Doubles& values, int64_t rows) {
    return context_->from_values<double>(values,
                                         {rows, static_cast<int64_t>(values.size()) / rows});
  }
  Tensor labels(const std::vector<int32_t>& values) {
    return context_->from_values<int32_t>(values, {static_cast<int64_t>(values.size())});
  }
  std::unique_ptr<Context> context_ = make_context({DeviceKind::cpu, 0}, 2);
};

Doubles softmax_of(const Doubles& x, double temperature) {
  Doubles p;
  for (const double value : x) p.push_back(std::exp(value / temperature));
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& value : p) value /= sum;
  return p;
}

// Straight from the formula, in loops.
TEST_F(DistillationTest, IsThePlainFormula) {
  const Doubles x{0.3, -1.2, 2.5, 0.1, -0.7}, y{1.1, 0.4, -2.0, 0.9, 0.2};
  constexpr int32_t kLabel = 2;
  constexpr double kMassSpread = 0.1, kRowWeight = 1.75;
  for (const double share : {0.25, 0.5, 1.0})
    for (const double h : {0.5, 1.0, 2.0, 8.0})
      for (const bool fused : {true, false}) {
        SCOPED_TRACE(concat("share ", share, ", temperature ", h, fused ? ", fused" : ""));
        context_->set_fused_kernels(fused);
        const Doubles hard = softmax_of(x, 1), p = softmax_of(x, h), q = softmax_of(y, h);
        double divergence = 0, spread = 0;
        for (size_t v = 0; v < x.size(); ++v) {
          divergence += q[v] * std::log(q[v] / p[v]);
          spread -= std::log(hard[v]) / static_cast<double>(x.size());
        }
        const double nll = -std::log(hard[kLabel]);
        const double loss = (1 - share) * ((1 - kMassSpread) * nll + kMassSpread * spread) +
                            share * h * h * divergence;
        Tensor logits = doubles(x, 1);
        set_requires_grad(logits, true);
        ops::DistillationOptions options{.share = share, .temperature = h};
        options.loss.label_smoothing = kMassSpread;
        options.loss.weights = context_->from_values<double>(Doubles{kRowWeight}, {1});
        options.loss.reduction = Reduction::sum;
        const auto out =
            ops::distillation(*context_, logits, doubles(y, 1), labels({kLabel}), options);
        EXPECT_NEAR(context_->item(out.loss), kRowWeight * loss, 1e-13);
        EXPECT_NEAR(context_->item(out.nll), kRowWeight * nll, 1e-13);
        context_->backward(out.loss);
        const auto gradient = context_->values<double>(grad_of(logits));
        for (size_t v = 0; v < x.size(); ++v) {
          const double target =
              (v == kLabel ? 1 - kMassSpread : 0) + kMassSpread / static_cast<double>(x.size());
          EXPECT_NEAR(gradient[v],
                      kRowWeight * ((1 - share) * (hard[v] - target) + share * h * (p[v] - q[v])),
                      1e-14)
              << v;
        }
      }
}

TEST_F(DistillationTest, AStudentThatAgreesHasNothingToLearn) {
  Tensor x = doubles({0.5, -1, 3, 2, 2, 2}, 2);
  set_requires_grad(x, true);
  const auto out =
      ops::distillation(*context_, x, x.detach(), labels({0, 1}), {.share = 1, .temperature = 2});
  EXPECT_NEAR(context_->item(out.loss), 0, 1e-15);
  EXPECT_GT(context_->item(out.nll), 1);
  context_->backward(out.loss);
  for (const double g : context_->values<double>(grad_of(x))) EXPECT_EQ(g, 0);
}

// As cross_entropy: what is impossible costs infinity only if it happens.
TEST_F(DistillationTest, ImpossibleClasses) {
  const auto loss = [&](const Doubles& x, const Doubles& y, double share = 1) {
    return context_->item(ops::distillation(*context_, doubles(x, 1), doubles(y, 1), labels({0}),
                                            {.share = share, .temperature = 2})
                              .loss);
  };
  for (const bool fused : {true, false}) {
    context_->set_fused_kernels(fused);
    const double two = loss({0, 1}, {1, 0});
    EXPECT_GT(two, 0);
    EXPECT_NEAR(loss({0, 1, -kInfinity}, {1, 0, -kInfinity}), two, 1e-15);
    EXPECT_LT(loss({0, 1, 1}, {1, 0, -kInfinity}), kInfinity);
    EXPECT_EQ(loss({0, 1, -kInfinity}, {1, 0, 0}), kInfinity);
    EXPECT_EQ(loss({-kInfinity, 1}, {-kInfinity, 0}, 0.5), kInfinity);  // the label
    EXPECT_LT(loss({-kInfinity, 1}, {-kInfinity, 0}), kInfinity);
    const double nan = std::numeric_limits<double>::quiet_NaN();
    EXPECT_TRUE(std::isnan(loss({0, nan}, {1, 0})));
    EXPECT_TRUE(std::isnan(loss({0, 1}, {nan, 0})));
    EXPECT_TRUE(std::isnan(loss({0, 1}, {-kInfinity, -kInfinity})));
  }
}

TEST_F(DistillationTest, IgnoredRowsMayHoldAnything) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const bool fused : {true, false}) {
    context_->set_fused_kernels(fused);
    Tensor x = doubles({0, 1, nan, nan, 2, 0}, 3);
    set_requires_grad(x, true);
    const auto out = ops::distillation(*context_, x, doubles({1, 0, nan, kInfinity, 0, 0}, 3),
                                       labels({0, -100, 1}), {.share = 0.5, .temperature = 2});
    EXPECT_TRUE(std::isfinite(context_->item(out.loss)));
    context_->backward(out.loss);
    const auto gradient = context_->values<double>(grad_of(x));
    EXPECT_EQ(gradient[2], 0);
    EXPECT_EQ(gradient[3], 0);
    for (const double g : gradient) EXPECT_TRUE(std::isfinite(g));
  }
}

TEST_F(DistillationTest, WithoutAShareItIsCrossEntropyBitForBit) {
  InputMaker maker(*context_, DType::f32, 3);
  Tensor a = maker.uniform({6, 40}), b = a.detach();
  set_requires_grad(a, true);
  const Tensor teacher = maker.uniform({6, 40}), classes = maker.integers({6}, 0, 40);
  ops::DistillationOptions options{.share = 0, .temperature = 2};
  options.loss.label_smoothing = 0.1;
  const auto taught = ops::distillation(*context_, a, teacher, classes, options);
  context_->backward(taught.loss);
  const auto gradient = context_->values<float>(grad_of(a));
  Tensor c = context_->from_values<float>(context_->values<float>(b), {6, 40});
  set_requires_grad(c, true);
  const auto plain = ops::cross_entropy(*context_, c, classes, options.loss);
  context_->backward(plain.loss);
  EXPECT_EQ(context_->item(taught.loss), context_->item(plain.loss));
  EXPECT_EQ(gradient, context_->values<float>(grad_of(c)));
}

TEST_F(DistillationTest, NamesWhatIsWrong) {
  using enum ErrorCode;
  const Tensor x = doubles({1, 2, 3, 4}, 2), y = doubles({1, 2, 3, 4}, 2), c = labels({0, 1});
  const auto refused = [&](ErrorCode code, const char* text, const Tensor& teacher,
                           const ops::DistillationOptions& options) {
    expect_error(code, text, [&] { ops::distillation(*context_, x, teacher, c, options); });
  };
  for (const double share : {-0.1, 1.1, std::nan("")})
    refused(invalid_argument, "share", y, {.share = share});
  for (const double temperature : {0.0, -1.0, kInfinity, std::nan("")})
    refused(invalid_argument, "temperature", y, {.temperature = temperature});
  refused(shape_mismatch, "the teacher are [2, 3], the logits [2, 2]",
          doubles({1, 2, 3, 4, 5, 6}, 2), {});
  refused(dtype_mismatch, "teacher_logits is float32", context_->zeros({2, 2}, DType::f32), {});
  ops::DistillationOptions weighted;
  weighted.loss.class_weights = context_->from_values<double>(Doubles{1, 1}, {2});
  refused(unsupported, "class weights", y, weighted);
  expect_error(invalid_argument, "label 2 of row 1", [&] {
    ops::distillation(*context_, x, y, labels({0, 2}));
  });
}

// --- in chunks, with the projections of both models ---

struct TaughtRun {
  Doubles values;  // loss, nll, dx, dweight, dbias
};

enum class Form { chunked, reference, apart };  // apart: all logits, then the op

TaughtRun run_taught(Form form, int64_t chunk_rows, DType dtype = DType::f64) {
  constexpr int64_t kRows = 53, kWidth = 12, kTeacherWidth = 20, kClasses = 41;
  const auto context = make_context({DeviceKind::cpu, 0}, 2);
  context->set_fused_kernels(form != Form::reference);
  InputMaker maker(*context, dtype, 5);
  std::vector<Tensor> inputs{maker.uniform({kRows, kWidth}), maker.uniform({kClasses, kWidth}),
                             maker.uniform({kClasses})};
  for (Tensor& input : inputs) set_requires_grad(input, true);
  std::vector<int32_t> classes;
  for (int32_t t = 0; t < kRows; ++t) classes.push_back(t % 5 == 2 ? -100 : t % kClasses);
  const Tensor labels = context->from_values<int32_t>(classes, {kRows});
  ops::DistillationTeacher teacher;
  teacher.x = maker.uniform({kRows, kTeacherWidth});
  teacher.weight = maker.uniform({kClasses, kTeacherWidth});
  teacher.bias = maker.uniform({kClasses});
  teacher.share = 0.6;
  teacher.temperature = 2;
  ops::LinearCrossEntropyOptions options;
  options.chunk_bytes = 2 * chunk_rows * kClasses * static_cast<int64_t>(dtype_size(dtype));
  options.loss.label_smoothing = 0.1;
  options.loss.weights = maker.uniform({kRows}, 0, 2);
  options.teacher = teacher;
  const auto out =
      form == Form::apart
          ? ops::distillation(*context, ops::linear(*context, inputs[0], inputs[1], inputs[2]),
                              ops::linear(*context, teacher.x, teacher.weight, teacher.bias),
                              labels, {options.loss, teacher.share, teacher.temperature})
          : ops::linear_cross_entropy(*context, inputs[0], inputs[1], inputs[2], labels, options);
  context->backward(out.loss);
  TaughtRun run{{context->item(out.loss), context->item(out.nll)}};
  for (const Tensor& input : inputs) {
    if (dtype == DType::f64)
      for (const double g : context->values<double>(grad_of(input))) run.values.push_back(g);
    else
      for (const float g : context->values<float>(grad_of(input)))
        run.values.push_back(static_cast<double>(g));
  }
  return run;
}

TEST(TaughtLinearCrossEntropy, ChunksOfAnySizeGiveTheSame) {
  const TaughtRun apart = run_taught(Form::apart, 1000);
  const TaughtRun reference = run_taught(Form::reference, 1000);
  for (const int64_t chunk_rows : {1, 2, 7, 16, 17, 52, 53, 1000}) {
    const TaughtRun chunked = run_taught(Form::chunked, chunk_rows);
    ASSERT_EQ(chunked.values.size(), apart.values.size());
    for (size_t i = 0; i < apart.values.size(); ++i) {
      ASSERT_NEAR(chunked.values[i], apart.values[i], 1e-13) << chunk_rows << ", " << i;
      ASSERT_NEAR(chunked.values[i], reference.values[i], 1e-13) << chunk_rows << ", " << i;
    }
  }
}

TEST(TaughtLinearCrossEntropy, Float32IsFloat64Rounded) {
  const TaughtRun exact = run_taught(Form::chunked, 16);
  const TaughtRun single = run_taught(Form::chunked, 16, DType::f32);
  for (size_t i = 0; i < exact.values.size(); ++i)
    ASSERT_NEAR(single.values[i], exact.values[i], 2e-6 * (1 + std::abs(exact.values[i]))) << i;
}

TEST(TaughtLinearCrossEntropy, NeverHoldsAllLogitsOfEitherModel) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  InputMaker maker(*context, DType::f32, 5);
  constexpr int64_t kRows = 2000, kClasses = 3000;
  Tensor x = maker.uniform({kRows, 8}), weight = maker.uniform({kClasses, 8});
  set_requires_grad(x, true);
  set_requires_grad(weight, true);
  const Tensor labels = maker.integers({kRows}, 0, static_cast<int32_t>(kClasses));
  ops::LinearCrossEntropyOptions options;
  options.chunk_bytes = 1 << 20;
  options.teacher = {maker.uniform({kRows, 8}), maker.uniform({kClasses, 8}), {}, 0.5, 1};
  context->backend().reset_peak_memory();
  const int64_t before = context->backend().memory_stats().allocated_bytes;
  context->backward(ops::linear_cross_entropy(*context, x, weight, {}, labels, options).loss);
  EXPECT_LT(context->backend().memory_stats().peak_bytes - before, 2 << 20);  // of 48 MB
}

TEST(TaughtLinearCrossEntropy, NamesWhatIsWrong) {
  using enum ErrorCode;
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const auto zeros = [&](const Shape& shape, DType dtype = DType::f32) {
    return context->zeros(shape, dtype);
  };
  const Tensor x = zeros({2, 3}), weight = zeros({4, 3});
  const Tensor labels = context->from_values<int32_t>(std::vector<int32_t>{0, 3}, {2});
  const auto refused = [&](ErrorCode code, const char* text,
                           const ops::DistillationTeacher& teacher) {
    ops::LinearCrossEntropyOptions options;
    options.teacher = teacher;
    expect_error(code, text,
                 [&] { ops::linear_cross_entropy(*context, x, weight, {}, labels, options); });
  };
  refused(shape_mismatch, "the teacher has 5 classes, the student 4",
          {zeros({2, 6}), zeros({5, 6}), {}, 0.5, 1});
  refused(shape_mismatch, "the teacher's x must be [2, width]",
          {zeros({3, 6}), zeros({4, 6}), {}, 0.5, 1});
  refused(shape_mismatch, "the teacher's bias must be [4]",
          {zeros({2, 6}), zeros({4, 6}), zeros({3}), 0.5, 1});
  refused(dtype_mismatch, "the teacher's x is float64",
          {zeros({2, 6}, DType::f64), zeros({4, 6}, DType::f64), {}, 0.5, 1});
  refused(invalid_argument, "share", {zeros({2, 6}), zeros({4, 6}), {}, 0, 1});
  refused(invalid_argument, "temperature", {zeros({2, 6}), zeros({4, 6}), {}, 0.5, 0});
}

}  // namespace
}  // namespace trafo::testing
