#include "engine/ops/linear_cross_entropy/linear_cross_entropy.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/backend/meta/meta_backend.h"
#include "engine/ops/op_kernel.h"
#include "tests/ops/op_cases.h"

namespace trafo::testing {
namespace {

constexpr int64_t kHeadRows = 53, kHeadWidth = 12, kClasses = 41;

struct HeadRun {
  std::vector<double> values;  // loss, nll, dx, dweight, dbias
};

HeadRun run_head(int64_t chunk_rows, double upstream, bool fused = true, double soft_cap = 0) {
  const auto context = make_context({DeviceKind::cpu, 0}, 2);
  context->set_fused_kernels(fused);
  InputMaker maker(*context, DType::f64, 5);
  std::vector<Tensor> inputs{maker.uniform({kHeadRows, kHeadWidth}),
                             maker.uniform({kClasses, kHeadWidth}), maker.uniform({kClasses})};
  for (Tensor& input : inputs) set_requires_grad(input, true);
  std::vector<int32_t> labels;
  for (int32_t t = 0; t < kHeadRows; ++t) labels.push_back(t % 5 == 2 ? -100 : t % kClasses);
  ops::LinearCrossEntropyOptions options;
  options.chunk_bytes = chunk_rows * kClasses * 8;
  options.soft_cap = soft_cap;
  options.loss.label_smoothing = 0.1;
  options.loss.weights = maker.uniform({kHeadRows}, 0, 2);
  const auto out =
      ops::linear_cross_entropy(*context, inputs[0], inputs[1], inputs[2],
                                context->from_values<int32_t>(labels, {kHeadRows}), options);
  context->backward(out.loss, context->scalar(upstream, {1}, DType::f64));
  HeadRun run{{context->item(out.loss), context->item(out.nll)}};
  for (const Tensor& input : inputs)
    for (const double g : context->values<double>(grad_of(input))) run.values.push_back(g);
  return run;
}

TEST(LinearCrossEntropy, ChunksOfAnySizeGiveTheSame) {
  for (const double soft_cap : {0.0, 1.25}) {
    const HeadRun whole = run_head(1000, 1, true, soft_cap),
                  reference = run_head(1000, 1, false, soft_cap);
    for (const int64_t chunk_rows : {1, 2, 7, 16, 17, 48, 52, 53}) {
      const HeadRun chunked = run_head(chunk_rows, 1, true, soft_cap);
      for (size_t i = 0; i < whole.values.size(); ++i) {
        ASSERT_NEAR(chunked.values[i], whole.values[i], 1e-14) << chunk_rows << ", " << i;
        ASSERT_NEAR(chunked.values[i], reference.values[i], 1e-13) << chunk_rows << ", " << i;
      }
    }
  }
}

TEST(LinearCrossEntropy, ScalesByTheUpstreamGradient) {
  const HeadRun one = run_head(16, 1), scaled = run_head(16, -0.75);
  for (size_t i = 2; i < one.values.size(); ++i)
    ASSERT_NEAR(scaled.values[i], -0.75 * one.values[i], 1e-15) << i;
}

// Without a budget a chunk has twice the bytes of the weights' gradient, but 80 to 208 MiB.
TEST(LinearCrossEntropy, ADeviceHoldsChunksByTheSizeOfTheWeights) {
  for (const auto& [classes, megabytes] : {std::pair{40000, 80}, {160000, 156}, {400000, 208}}) {
    Context context(make_meta_backend({DeviceKind::cuda, 0}, kOpKernelCount));
    const NoGrad no_grad(context);
    const int64_t rows = 20000, width = 128;
    const Tensor x = context.empty({rows, width}, DType::f32);
    const Tensor weight = context.empty({classes, width}, DType::f32);
    const Tensor labels = context.empty({rows}, DType::i32);
    context.backend().reset_peak_memory();
    const int64_t before = context.backend().memory_stats().allocated_bytes;
    ops::linear_cross_entropy(context, x, weight, {}, labels);
    const int64_t peak = context.backend().memory_stats().peak_bytes - before;
    EXPECT_NEAR(static_cast<double>(peak) / (1 << 20), megabytes, 0.1 * megabytes) << classes;
  }
}

TEST(LinearCrossEntropy, NeverHoldsAllLogits) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  InputMaker maker(*context, DType::f32, 5);
  const int64_t rows = 2000, classes = 3000;
  Tensor x = maker.uniform({rows, 8}), weight = maker.uniform({classes, 8});
  set_requires_grad(x, true);
  set_requires_grad(weight, true);
  const Tensor labels = maker.integers({rows}, 0, static_cast<int32_t>(classes));
  ops::LinearCrossEntropyOptions options;
  options.chunk_bytes = 1 << 20;
  context->backend().reset_peak_memory();
  const int64_t before = context->backend().memory_stats().allocated_bytes;
  context->backward(ops::linear_cross_entropy(*context, x, weight, {}, labels, options).loss);
  const int64_t peak = context->backend().memory_stats().peak_bytes - before;
  EXPECT_LT(peak, 2 << 20);  // all logits would be 24 MB
  EXPECT_GT(peak, 1 << 19);
}

TEST(LinearCrossEntropy, NamesWhatIsWrong) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const Tensor x = context->zeros({2, 3}, DType::f32), weight = context->zeros({4, 3}, DType::f32);
  const Tensor labels = context->from_values<int32_t>(std::vector<int32_t>{0, 4}, {2});
  const auto expect_error = [&](ErrorCode code, const Tensor& w, const Tensor& bias,
                                const ops::LinearCrossEntropyOptions& options) {
    try {
      ops::linear_cross_entropy(*context, x, w, bias, labels, options);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_EQ(error.origin(), "linear_cross_entropy");
    }
  };
  expect_error(ErrorCode::invalid_argument, weight, {}, {});  // label 4 of 0..3
  expect_error(ErrorCode::shape_mismatch, context->zeros({4, 2}, DType::f32), {}, {});
  expect_error(ErrorCode::shape_mismatch, weight, context->zeros({3}, DType::f32), {});
  expect_error(ErrorCode::dtype_mismatch, context->zeros({4, 3}, DType::f64), {}, {});
  expect_error(ErrorCode::invalid_argument, weight, {}, {.loss = {.reduction = Reduction::none}});
  expect_error(ErrorCode::invalid_argument, weight, {}, {.chunk_bytes = 0});
}

}  // namespace
}  // namespace trafo::testing
