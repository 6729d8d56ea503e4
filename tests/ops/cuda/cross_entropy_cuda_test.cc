// Cross-entropy on CUDA against sums in float64 on the host: widths at every border of the kernels,
// rows that begin between 16-byte boundaries, gradients at once, in place and added. For
// TRAFO_TEST_DEVICE=cuda.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <thread>

#include "engine/core/numeric/philox.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/linear_cross_entropy/linear_cross_entropy.h"
#include "engine/ops/op_kernel.h"
#include "tests/ops/cuda/cuda_test.h"

namespace trafo::testing {
namespace {

using Doubles = std::vector<double>;

constexpr double kSmoothing = 0.1, kScale = 0.75;
constexpr int32_t kIgnored = -100;
constexpr int64_t kLossRows = 5;

struct LossProblem {
  DType dtype;
  int64_t classes;
  Doubles logits;
  std::vector<int32_t> labels;
  Doubles weights, loss, nll, gradient;  // what they should be
};

double rounded(DType dtype, double value) {
  const auto narrow = static_cast<float>(value);
  return static_cast<double>(dtype == DType::bf16 ? BFloat16::from_float(narrow).to_float()
                                                  : narrow);
}

LossProblem problem(DType dtype, int64_t classes, PhiloxStream& random) {
  const auto width = static_cast<size_t>(classes);
  LossProblem p{dtype, classes, Doubles(kLossRows * width),     {}, {},
                {},    {},      Doubles(kLossRows * width, 0.0)};
  for (double& x : p.logits) x = rounded(dtype, random.uniform(-6, 6));
  for (int64_t t = 0; t < kLossRows; ++t) {
    const auto label = t == 0   ? 0
                       : t == 1 ? classes - 1
                                : static_cast<int64_t>(random.next_u32()) % classes;
    p.labels.push_back(t == 2 ? kIgnored : static_cast<int32_t>(label));
    p.weights.push_back(rounded(DType::f32, random.uniform(0.5, 2)));
  }
  for (size_t t = 0; t < kLossRows; ++t) {
    const double* x = p.logits.data() + t * width;
    double sum = 0, total = 0;
    for (size_t c = 0; c < width; ++c) {
      sum += std::exp(x[c]);
      total += x[c];
    }
    const bool counts = p.labels[t] != kIgnored;
    const double log_sum = std::log(sum), count = static_cast<double>(classes);
    const auto label = static_cast<size_t>(std::max(p.labels[t], 0));
    const double hit = log_sum - x[label];
    p.nll.push_back(counts ? p.weights[t] * hit : 0);
    p.loss.push_back(counts ? p.weights[t] *
                                  ((1 - kSmoothing) * hit + kSmoothing * (log_sum - total / count))
                            : 0);
    if (!counts) continue;
    double* d = p.gradient.data() + t * width;
    for (size_t c = 0; c < width; ++c)
      d[c] = kScale * p.weights[t] *
             (std::exp(x[c] - log_sum) - kSmoothing / count - (c == label ? 1 - kSmoothing : 0));
  }
  return p;
}

class CrossEntropyOnCuda : public CudaTest {
 protected:
  // A buffer with `values` from element `at` on, and a few more after them.
  Tensor upload(DType dtype, const Doubles& values, int64_t at = 0) const {
    std::vector<float> wide(static_cast<size_t>(at), 0.0f);
    wide.insert(wide.end(), values.begin(), values.end());
    wide.resize(wide.size() + 16, 0.0f);
    const Shape shape{static_cast<int64_t>(wide.size())};
    if (dtype == DType::f32) return context_->from_values<float>(wide, shape);
    std::vector<BFloat16> narrow;
    for (const float value : wide) narrow.push_back(BFloat16::from_float(value));
    return context_->from_values<BFloat16>(narrow, shape);
  }
  // Also that nothing around the values was written. `old`: what the values were added to.
  void expect(const Tensor& tensor, int64_t at, const Doubles& expected, double old = 0) const {
    const Doubles all = download(tensor);
    const double rounding = tensor.dtype() == DType::f32 ? 8e-6 : 0x1p-8;
    // Probabilities are about 1 / classes, and cancel with the target.
    const double cancelled = 2e-8 + 2e-6 * kLossRows / static_cast<double>(expected.size());
    const auto begin = static_cast<size_t>(at), end = begin + expected.size();
    for (size_t i = 0; i < all.size(); ++i) {
      if (i < begin || i >= end) {
        ASSERT_EQ(all[i], 0) << "element " << i << " is not of the tensor";
      } else {
        const double wanted = expected[i - begin] + old;
        ASSERT_NEAR(all[i], wanted, rounding * std::abs(wanted) + cancelled)
            << "element " << i - begin;
      }
    }
  }

  void run(const LossProblem& p, int64_t offset) {
    SCOPED_TRACE(concat(p.classes, " classes, ", dtype_name(p.dtype), ", from element ", offset));
    const auto bytes = static_cast<int64_t>(dtype_size(p.dtype));
    const auto at = [&](const Tensor& tensor, int64_t element) -> void* {
      return static_cast<std::byte*>(tensor.raw()) + element * bytes;
    };
    const Tensor labels = context_->from_values<int32_t>(p.labels, {kLossRows});
    const Tensor weights = upload(DType::f32, p.weights);
    const Tensor logits = upload(p.dtype, p.logits, offset);
    const Tensor lse = upload(DType::f32, Doubles(kLossRows, 1.0));
    CrossEntropyForwardParams forward{};
    forward.dtype = p.dtype;
    forward.label_smoothing = kSmoothing;
    forward.ignore_label = kIgnored;
    forward.rows = kLossRows;
    forward.classes = forward.stride = p.classes;
    forward.labels = static_cast<const int32_t*>(labels.raw());
    forward.weights = weights.raw();
    forward.lse = lse.raw();
    forward.dloss = kScale;
    const auto check_forward = [&](const Tensor& in, void* dlogits) {
      const Tensor loss = upload(DType::f32, Doubles(kLossRows, 1.0));
      const Tensor nll = upload(DType::f32, Doubles(kLossRows, 1.0));
      forward.logits = at(in, offset);
      forward.dlogits = dlogits;
      forward.loss = loss.raw();
      forward.nll = nll.raw();
      launch(*context_, OpKernel::cross_entropy_forward, "test", forward);
      expect(loss, 0, p.loss);
      expect(nll, 0, p.nll);
    };
    check_forward(logits, nullptr);
    const Tensor in_place = upload(p.dtype, p.logits, offset);
    check_forward(in_place, at(in_place, offset));
    expect(in_place, offset, p.gradient);
    for (const int64_t to : {offset, offset + 1}) {  // as logits are aligned, and otherwise
      const Tensor out = upload(p.dtype, Doubles(p.logits.size(), 9.0), to);
      check_forward(logits, at(out, to));
      expect(out, to, p.gradient);
    }

    const Tensor dloss = upload(DType::f32, {0.5});
    CrossEntropyBackwardParams backward{};
    backward.dtype = p.dtype;
    backward.label_smoothing = kSmoothing;
    backward.ignore_label = kIgnored;
    backward.rows = kLossRows;
    backward.classes = p.classes;
    backward.labels = forward.labels;
    backward.weights = forward.weights;
    backward.lse = lse.raw();
    backward.dloss = dloss.raw();
    backward.scale = 2 * kScale;
    const Tensor again = upload(p.dtype, p.logits, offset);
    backward.logits = at(again, offset);
    backward.dlogits = at(again, offset);
    launch(*context_, OpKernel::cross_entropy_backward, "test", backward);
    expect(again, offset, p.gradient);
    backward.logits = at(logits, offset);
    backward.accumulate = true;
    for (const int64_t to : {offset, offset + 1}) {
      const Tensor out = upload(p.dtype, Doubles(p.logits.size(), 0.25), to);
      backward.dlogits = at(out, to);
      launch(*context_, OpKernel::cross_entropy_backward, "test", backward);
      expect(out, to, p.gradient, 0.25);
    }
  }

  PhiloxStream random_{7, 8};
};

// Where float32 has no room for the log of the sum beside the logits.
TEST_F(CrossEntropyOnCuda, HugeLogits) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const double huge : {2048.0, 0x1p100, -0x1p100})
      for (const int64_t classes : {5, 1000}) {
        Tensor x = context_->from_doubles(Doubles(static_cast<size_t>(classes), huge), {1, classes},
                                          dtype);
        set_requires_grad(x, true);
        const auto out = ops::cross_entropy(
            *context_, x, context_->from_values<int32_t>(std::vector<int32_t>{1}, {1}),
            {.label_smoothing = kSmoothing, .reduction = Reduction::sum});
        const auto count = static_cast<double>(classes);
        EXPECT_NEAR(context_->item(out.loss), std::log(count), 1e-5) << huge;
        EXPECT_NEAR(context_->item(out.nll), std::log(count), 1e-5) << huge;
        context_->backward(out.loss);
        const Doubles gradient = download(grad_of(x));
        for (size_t c = 0; c < gradient.size(); ++c) {
          const double wanted = (1 - kSmoothing) / count - (c == 1 ? 1 - kSmoothing : 0);
          EXPECT_NEAR(gradient[c], wanted, std::abs(wanted) * (dtype == DType::f32 ? 1e-5 : 0x1p-8))
              << huge << ", class " << c;
        }
      }
}

// The same where the blocks of a cluster share the row and write over it.
TEST_F(CrossEntropyOnCuda, HugeLogitsOfLongRows) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const double huge : {2048.0, 0x1p100, -0x1p100}) {
      constexpr int64_t kMany = 60000, kRows = 3;
      const auto count = static_cast<double>(kMany);
      Tensor bias = context_->from_doubles(Doubles(kMany, huge), {kMany}, dtype);
      set_requires_grad(bias, true);
      const auto out = ops::linear_cross_entropy(
          *context_, context_->zeros({kRows, 8}, dtype), context_->zeros({kMany, 8}, dtype), bias,
          context_->from_values<int32_t>(std::vector<int32_t>{1, 1, 1}, {kRows}),
          {.loss = {.label_smoothing = kSmoothing, .reduction = Reduction::mean}});
      EXPECT_NEAR(context_->item(out.loss), std::log(count), 1e-5) << huge;
      EXPECT_NEAR(context_->item(out.nll), std::log(count), 1e-5) << huge;
      context_->backward(out.loss);
      const Doubles gradient = download(grad_of(bias));
      for (size_t c = 0; c < gradient.size(); ++c) {
        const double wanted = (1 - kSmoothing) / count - (c == 1 ? 1 - kSmoothing : 0);
        ASSERT_NEAR(gradient[c], wanted, std::abs(wanted) * (dtype == DType::f32 ? 1e-5 : 0x1p-8))
            << huge << ", class " << c;
      }
    }
}

// Blocks of 128, 256 and 512 threads; a ring of eight packs a thread that is not filled, filled,
// and filled again; rows that shared memory holds, that clusters of two, four and eight blocks
// share, and longer ones.
TEST_F(CrossEntropyOnCuda, WidthsAndAlignments) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int64_t classes :
         {1, 5, 17, 1000, 2049, 4096, 4104, 10000, 10001, 16400, 32801, 50304, 60001, 130001}) {
      const LossProblem p = problem(dtype, classes, random_);
      for (const int64_t offset : {0, 1}) {
        run(p, offset);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// 12,000 classes need 48 KiB of shared memory and 16,000 need 64, in the same kernel. The limit of
// a kernel is common to both contexts.
TEST_F(CrossEntropyOnCuda, TwoThreadsLaunchWithDifferentSharedMemory) {
  constexpr int kLaunches = 20000;
  std::optional<Error> errors[2];
  const auto launches = [](int64_t classes) {
    const auto context = cuda_context();
    const Tensor logits = context->zeros({1, classes}, DType::f32);
    const Tensor labels = context->from_values<int32_t>(std::vector<int32_t>{0}, {1});
    const Tensor sums = context->zeros({3}, DType::f32);
    auto* results = static_cast<float*>(sums.raw());
    CrossEntropyForwardParams forward{};
    forward.dtype = DType::f32;
    forward.ignore_label = kIgnored;
    forward.rows = 1;
    forward.classes = forward.stride = classes;
    forward.labels = static_cast<const int32_t*>(labels.raw());
    forward.logits = logits.raw();
    forward.loss = results;
    forward.nll = results + 1;
    forward.lse = results + 2;
    for (int i = 0; i < kLaunches; ++i)
      launch(*context, OpKernel::cross_entropy_forward, "test", forward);
    context->backend().synchronize();
  };
  const auto work = [&](std::optional<Error>& failed, int64_t classes) {
    try {
      launches(classes);
    } catch (const Error& error) {
      failed = error;
    }
  };
  std::thread other(work, std::ref(errors[1]), 16000);
  work(errors[0], 12000);
  other.join();
  for (const auto& error : errors) EXPECT_FALSE(error) << error->message();
}

}  // namespace
}  // namespace trafo::testing
