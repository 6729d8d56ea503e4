#include "engine/ops/softmax/softmax.h"

#include <limits>

#include "tests/ops/row_test.h"

namespace trafo::testing {
namespace {

TEST(Softmax, HiddenKeysAndRowsAreExactZeros) {
  const auto context = cpu_context();
  for (const bool fused : {true, false}) {
    context->set_fused_kernels(fused);
    InputMaker make(*context, DType::f32, 1);
    const int64_t keys = 37;
    std::vector<int32_t> hidden(3 * keys, 0);
    for (int64_t k = 0; k < keys; ++k) hidden[static_cast<size_t>(keys + k)] = 1;  // sentence 1
    for (int64_t k = 20; k < keys; ++k) hidden[static_cast<size_t>(2 * keys + k)] = 1;
    ops::SoftmaxOptions options;
    options.causal = true;
    options.padding_mask = context->from_values<int32_t>(hidden, {3, keys});
    const Tensor y = ops::softmax(*context, make.uniform({3, 2, keys, keys}, -50, 50), options);
    for (int64_t row = 0; row < 3 * 2 * keys; ++row) {
      const int64_t batch = row / (2 * keys), query = row % keys;
      double total = 0;
      for (int64_t k = 0; k < keys; ++k) {
        const float v = y.data<float>()[row * keys + k];
        const bool sees = k <= query && hidden[static_cast<size_t>(batch * keys + k)] == 0;
        EXPECT_TRUE(sees || v == 0) << "batch " << batch << " query " << query << " key " << k;
        total += v;
      }
      EXPECT_NEAR(total, batch == 1 ? 0 : 1, 1e-6);
    }
  }
}

TEST(Softmax, FusedItIsOneRangeOfAProfile) {
  const auto context = cpu_context();
  const Tensor x = filled(*context, {3, 5}, 1);
  const auto ranges = [&](bool fused) {
    context->set_fused_kernels(fused);
    context->start_profile();
    ops::softmax(*context, x, {});
    return context->finish_profile().ranges.size();
  };
  EXPECT_EQ(ranges(true), 1u);
  EXPECT_GT(ranges(false), 1u);
}

TEST(Softmax, LargeLogitsAndLongRows) {
  const auto context = cpu_context();
  for (const int64_t keys : {1, 15, 16, 17, 33, 1000, 50257, 100003}) {
    InputMaker make(*context, DType::f32, 2);
    const Tensor x = make.uniform({3, keys}, 9900, 10000);
    const Tensor y = ops::softmax(*context, x);
    for (int64_t row = 0; row < 3; ++row) {
      const float* in = x.data<float>() + row * keys;
      const double top = *std::max_element(in, in + keys);
      double total = 0;
      for (int64_t k = 0; k < keys; ++k) total += std::exp(in[k] - top);
      for (int64_t k = 0; k < keys; ++k)
        ASSERT_NEAR(y.data<float>()[row * keys + k], std::exp(in[k] - top) / total, 1e-6) << keys;
    }
  }
}

TEST(Softmax, DoesNotTouchItsInput) {
  const auto context = cpu_context();
  InputMaker make(*context, DType::f32, 3);
  const Tensor x = make.uniform({4, 19});
  const auto before = context->values<float>(x);
  ops::softmax(*context, x);
  EXPECT_EQ(context->values<float>(x), before);
}

TEST(Softmax, NaNStaysInItsRow) {
  const auto context = cpu_context();
  Tensor x = filled(*context, {3, 40}, 1);
  x.data<float>()[45] = std::nanf("");
  const Tensor y = ops::softmax(*context, x);
  for (int64_t i = 0; i < 120; ++i)
    EXPECT_EQ(std::isnan(y.data<float>()[i]), i / 40 == 1) << "element " << i;
}

// As PyTorch: a score of -infinity is a masked key; a row of nothing else, and a score of
// +infinity, have no softmax.
TEST(Softmax, InfiniteScores) {
  const auto context = cpu_context();
  const float infinity = std::numeric_limits<float>::infinity();
  for (const bool fused : {true, false}) {
    SCOPED_TRACE(fused ? "fused" : "reference");
    context->set_fused_kernels(fused);
    for (const bool masked : {false, true}) {
      Tensor x = context->from_values<float>(std::vector<float>{0, -infinity, 1}, {1, 3});
      set_requires_grad(x, true);
      ops::SoftmaxOptions options;
      if (masked)  // the key that is -infinity anyway
        options.padding_mask = context->from_values<int32_t>(std::vector<int32_t>{0, 1, 0}, {1, 3});
      const Tensor y = ops::softmax(*context, x, options);
      const std::vector<double> expected{1 / (1 + std::exp(1.0)), 0, 1 / (1 + std::exp(-1.0))};
      EXPECT_LT(relative_error(doubles(y), expected), 1e-7);
      context->backward(y, context->from_values<float>(std::vector<float>{1, 2, 3}, {1, 3}));
      const double mean = expected[0] + 3 * expected[2];
      EXPECT_LT(relative_error(doubles(grad_of(x)),
                               {expected[0] * (1 - mean), 0, expected[2] * (3 - mean)}),
                1e-6);
    }
    for (const float bad : {infinity, -infinity}) {
      const Tensor y = ops::softmax(
          *context, context->from_values<float>(std::vector<float>{-infinity, bad}, {2}));
      for (const float v : context->values<float>(y)) EXPECT_TRUE(std::isnan(v)) << bad;
    }
    // A masked key may hold anything.
    ops::SoftmaxOptions options;
    options.padding_mask = context->from_values<int32_t>(std::vector<int32_t>{0, 1}, {1, 2});
    for (const float bad : {infinity, std::nanf("")}) {
      Tensor x = context->from_values<float>(std::vector<float>{3, bad}, {1, 2});
      set_requires_grad(x, true);
      const Tensor y = ops::softmax(*context, x, options);
      EXPECT_EQ(context->values<float>(y), (std::vector<float>{1, 0})) << bad;
    }
  }
}

TEST(Softmax, ErrorsNameTheInput) {
  const auto context = cpu_context();
  Context& c = *context;
  const Tensor x = filled(c, {2, 1, 3, 4}, 1);
  ops::SoftmaxOptions options;
  options.padding_mask = c.zeros({2, 3}, DType::i32);
  expect_error(ErrorCode::shape_mismatch, "padding_mask must be [batch, keys] = [2, 4]",
               [&] { ops::softmax(c, x, options); });
  options.padding_mask = c.zeros({2, 4}, DType::f32);
  expect_error(ErrorCode::dtype_mismatch, "padding_mask must be int32",
               [&] { ops::softmax(c, x, options); });
  expect_error(ErrorCode::shape_mismatch, "fewer dimensions", [&] {
    ops::softmax(c, c.zeros({1, 1, 1, 1, 1}, DType::f32));
  });
  expect_error(ErrorCode::dtype_mismatch, "bfloat16 is a storage type", [&] {
    ops::softmax(c, c.zeros({2, 2}, DType::bf16));
  });
  ops::SoftmaxOptions infinite;
  infinite.scale = INFINITY;
  expect_error(ErrorCode::invalid_argument, "scale must be finite",
               [&] { ops::softmax(c, x, infinite); });
}

}  // namespace
}  // namespace trafo::testing
