// Distillation on CUDA against float64 on the CPU: widths at every border of the kernels, the
// gradient at once and from backward. For TRAFO_TEST_DEVICE=cuda.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/core/numeric/philox.h"
#include "engine/ops/distillation/distillation.h"
#include "tests/ops/cuda/cuda_test.h"

namespace trafo::testing {
namespace {

using Doubles = std::vector<double>;

constexpr int64_t kTaughtRows = 5;

class DistillationOnCuda : public CudaTest {
 protected:
  struct Result {
    Doubles loss, nll, gradient;
  };

  static Result run(Context& context, DType dtype, const Doubles& x, const Doubles& y,
                    const std::vector<int32_t>& labels, const Doubles& weights,
                    const ops::DistillationOptions& given, bool add = false) {
    const auto classes = static_cast<int64_t>(x.size()) / kTaughtRows;
    Tensor logits = context.from_doubles(x, {kTaughtRows, classes}, dtype);
    set_requires_grad(logits, true);
    ops::DistillationOptions options = given;
    options.loss.reduction = Reduction::none;
    options.loss.weights = context.from_doubles(weights, {kTaughtRows}, stat_dtype(dtype));
    const Tensor of_labels = context.from_values<int32_t>(labels, {kTaughtRows});
    const Tensor teacher = context.from_doubles(y, {kTaughtRows, classes}, dtype);
    Result result;
    for (int pass = 0; pass < (add ? 2 : 1); ++pass) {
      const auto out = ops::distillation(context, logits, teacher, of_labels, options);
      result.loss = numbers(context, out.loss);
      result.nll = numbers(context, out.nll);
      context.backward(out.loss, context.from_doubles(Doubles(kTaughtRows, 1.0), {kTaughtRows},
                                                      stat_dtype(dtype)));
    }
    result.gradient = numbers(context, grad_of(logits));
    return result;
  }

  static Doubles numbers(const Context& context, const Tensor& tensor) {
    if (tensor.dtype() == DType::f64) return context.values<double>(tensor);
    Doubles out;
    if (tensor.dtype() == DType::f32)
      for (const float value : context.values<float>(tensor))
        out.push_back(static_cast<double>(value));
    else
      for (const BFloat16 value : context.values<BFloat16>(tensor))
        out.push_back(static_cast<double>(value.to_float()));
    return out;
  }

  static void expect_near(const Doubles& got, const Doubles& wanted, double relative,
                          double absolute) {
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], wanted[i], relative * std::abs(wanted[i]) + absolute) << i;
  }

  std::unique_ptr<Context> host_ = make_context({DeviceKind::cpu, 0}, 1);
  PhiloxStream random_{9, 8};
};

TEST_F(DistillationOnCuda, EqualsFloat64AtEveryWidth) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int64_t classes :
         {1, 3, 7, 8, 9, 127, 128, 1023, 2048, 2051, 4096, 4100, 8193, 16385, 32003}) {
      Doubles x(static_cast<size_t>(kTaughtRows * classes)), y(x.size()), weights;
      const auto rounded = [&](double value) {
        const auto narrow = static_cast<float>(value);
        return static_cast<double>(dtype == DType::bf16 ? BFloat16::from_float(narrow).to_float()
                                                        : narrow);
      };
      for (double& value : x) value = rounded(random_.uniform(-6, 6));
      for (double& value : y) value = rounded(random_.uniform(-6, 6));
      std::vector<int32_t> labels;
      for (int64_t t = 0; t < kTaughtRows; ++t) {
        labels.push_back(t == 2 ? ops::kIgnoreLabel
                                : static_cast<int32_t>(t == 0 ? 0 : (classes - 1) * t / 4));
        weights.push_back(static_cast<double>(static_cast<float>(random_.uniform(0.5, 2))));
      }
      for (const double temperature : {1.0, 2.5}) {
        SCOPED_TRACE(concat(classes, " classes, ", dtype_name(dtype), ", h ", temperature));
        ops::DistillationOptions options{.share = 0.6, .temperature = temperature};
        options.loss.label_smoothing = 0.1;
        const Result exact = run(*host_, DType::f64, x, y, labels, weights, options);
        const Result once = run(*context_, dtype, x, y, labels, weights, options);
        const Result twice = run(*context_, dtype, x, y, labels, weights, options, true);
        const bool single = dtype == DType::f32;
        expect_near(once.loss, exact.loss, single ? 5e-6 : 2e-3, 1e-5);
        expect_near(once.nll, exact.nll, single ? 5e-6 : 2e-3, 1e-5);
        expect_near(once.gradient, exact.gradient, single ? 2e-5 : 0x1p-7, single ? 1e-7 : 1e-5);
        Doubles doubled = exact.gradient;
        for (double& value : doubled) value *= 2;
        expect_near(twice.gradient, doubled, single ? 2e-5 : 0x1p-6, single ? 2e-7 : 2e-5);
      }
    }
}

// In place and in another tensor, whatever the alignment of either.
TEST_F(DistillationOnCuda, TheGradientAtOnceIsThatOfBackward) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int64_t classes : {5, 64, 1001})
      for (const int64_t offset : {0, 1, 4})
        for (const bool in_place : {true, false}) {
          SCOPED_TRACE(concat(classes, " classes, ", dtype_name(dtype), ", from ", offset,
                              in_place ? ", in place" : ""));
          const auto count = static_cast<size_t>(kTaughtRows * classes);
          Doubles x(count), y(count);
          for (double& value : x) value = random_.uniform(-3, 3);
          for (double& value : y) value = random_.uniform(-3, 3);
          const auto padded = [&](const Doubles& values) {
            Doubles all(static_cast<size_t>(offset), 9.0);
            all.insert(all.end(), values.begin(), values.end());
            all.resize(all.size() + 8, 9.0);
            return context_->from_doubles(all, {static_cast<int64_t>(all.size())}, dtype);
          };
          const Tensor logits = padded(x), to = in_place ? logits : padded(Doubles(count, 0.0));
          const Tensor teacher = context_->from_doubles(y, {kTaughtRows, classes}, dtype);
          const std::vector<int32_t> classes_of_rows{0, ops::kIgnoreLabel, 1, 2, 3};
          const Tensor labels = context_->from_values<int32_t>(classes_of_rows, {kTaughtRows});
          const Tensor loss = context_->empty({kTaughtRows}, DType::f32);
          const Tensor nll = context_->empty({kTaughtRows}, DType::f32);
          const auto at = [&](const Tensor& tensor) {
            return static_cast<std::byte*>(tensor.raw()) +
                   offset * static_cast<int64_t>(dtype_size(dtype));
          };
          DistillationForwardParams p{};
          p.dtype = dtype;
          p.share = 0.5;
          p.temperature = 2;
          p.label_smoothing = 0.1;
          p.ignore_label = ops::kIgnoreLabel;
          p.rows = kTaughtRows;
          p.classes = p.stride = classes;
          p.logits = at(logits);
          p.teacher = teacher.raw();
          p.labels = static_cast<const int32_t*>(labels.raw());
          p.loss = loss.raw();
          p.nll = nll.raw();
          p.dloss = 0.75;
          p.dlogits = at(to);
          launch(*context_, OpKernel::distillation_forward, "test", p);
          ops::DistillationOptions options{.share = 0.5, .temperature = 2};
          options.loss.label_smoothing = 0.1;
          const Result exact = run(
              *host_, DType::f64, numbers(*host_, host_->from_doubles(x, {5, classes}, DType::f64)),
              y, classes_of_rows, Doubles(kTaughtRows, 1.0), options);
          const Doubles got = download(to);
          for (size_t i = 0; i < got.size(); ++i) {
            const auto begin = static_cast<size_t>(offset);
            if (i < begin || i >= begin + count) {
              ASSERT_EQ(got[i], 9) << "element " << i << " is not of the tensor";
              continue;
            }
            ASSERT_NEAR(got[i], 0.75 * exact.gradient[i - begin], dtype == DType::f32 ? 2e-6 : 2e-2)
                << i - begin;
          }
        }
}

TEST_F(DistillationOnCuda, ImpossibleClasses) {
  const float infinity = std::numeric_limits<float>::infinity();
  const auto loss = [&](std::vector<float> x, std::vector<float> y, double share = 1) {
    const auto classes = static_cast<int64_t>(x.size());
    return context_->item(
        ops::distillation(*context_, context_->from_values<float>(x, {1, classes}),
                          context_->from_values<float>(y, {1, classes}),
                          context_->from_values<int32_t>(std::vector<int32_t>{0}, {1}),
                          {.share = share, .temperature = 2})
            .loss);
  };
  const double two = loss({0, 1}, {1, 0});
  EXPECT_NEAR(loss({0, 1, -infinity}, {1, 0, -infinity}), two, 1e-6);
  EXPECT_LT(loss({0, 1, 1}, {1, 0, -infinity}), infinity);
  EXPECT_EQ(loss({0, 1, -infinity}, {1, 0, 0}), infinity);
  EXPECT_EQ(loss({-infinity, 1}, {-infinity, 0}, 0.5), infinity);
  EXPECT_LT(loss({-infinity, 1}, {-infinity, 0}), infinity);
  EXPECT_TRUE(std::isnan(loss({0, std::nanf("")}, {1, 0})));
  EXPECT_TRUE(std::isnan(loss({0, 1}, {std::nanf(""), 0})));
  EXPECT_TRUE(std::isnan(loss({0, 1}, {-infinity, -infinity})));
}

}  // namespace
}  // namespace trafo::testing
