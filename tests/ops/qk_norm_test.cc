#include "engine/ops/qk_norm/qk_norm.h"

#include "engine/ops/rms_norm/rms_norm.h"
#include "engine/ops/view/view.h"
#include "tests/ops/cuda/cuda_test.h"
#include "tests/ops/row_test.h"

namespace trafo::testing {
namespace {

TEST(QkNorm, KnownValues) {
  const auto context = cpu_context();
  // Two heads of queries, one of keys, and values.
  const std::vector<float> x = {3, 4, 1, -1, 0, 2, 7, 9}, query_gamma = {1, 2}, key_gamma = {5, 3};
  const Tensor y = ops::qk_norm(*context, context->from_values<float>(x, {1, 8}),
                                context->from_values<float>(query_gamma, {2}),
                                context->from_values<float>(key_gamma, {2}), 4, 2, 1e-12);
  // The root mean squares are sqrt(12.5), 1 and sqrt(2).
  const double root = std::sqrt(12.5);
  const std::vector<double> expected = {3 / root, 8 / root, 1, -2, 0, 3 * std::sqrt(2.0), 7, 9};
  EXPECT_LT(relative_error(doubles(y), expected), 1e-6);
}

TEST(QkNorm, AHeadIsARowOfRmsNormBitForBit) {
  for (const auto& [heads, width] : {std::pair<int64_t, int64_t>{3, 20}, {2, 7}, {1, 64}}) {
    const auto context = cpu_context();
    InputMaker make(*context, DType::f32, 3);
    const int64_t rows = 5, columns = heads * width;
    const Tensor x = make.uniform({rows, 3 * columns}), gamma = make.uniform({width}, 0.5, 1.5);
    const Tensor y = ops::qk_norm(*context, x, gamma, gamma, columns, columns, 1e-5);
    const Tensor by_heads =
        ops::rms_norm(*context, ops::reshape(*context, x, {rows, 3 * heads, width}), gamma, 1e-5);
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t c = 0; c < 3 * columns; ++c) {
        const int64_t at = row * 3 * columns + c;
        EXPECT_EQ(doubles(y)[at], doubles(c < 2 * columns ? by_heads : x)[at]) << row << " " << c;
      }
  }
}

// Many rows: the sums of the blocks of a gradient meet.
TEST(QkNorm, GradientsOfManyRowsAreThoseOfRmsNorm) {
  const auto context = cpu_context(2);
  const int64_t rows = 700, heads = 4, key_heads = 2, width = 24;
  const int64_t queries = heads * width, keys = key_heads * width, columns = queries + 2 * keys;
  const auto leaf = [](Tensor tensor) {
    set_requires_grad(tensor, true);
    return tensor;
  };
  struct Gradients {
    std::vector<double> x, of_queries, of_keys;
  };
  const auto gradients = [&](bool fused) {
    context->set_fused_kernels(fused);
    InputMaker make(*context, DType::f64, 9);
    const Tensor x = leaf(make.uniform({rows, columns})), dy = make.uniform({rows, columns}),
                 of_queries = leaf(make.uniform({width}, 0.5, 1.5)),
                 of_keys = leaf(make.uniform({width}, 0.5, 1.5));
    const Tensor y = ops::qk_norm(*context, x, of_queries, of_keys, queries, keys, 1e-6);
    context->tape().backward(*context, std::vector{y}, std::vector{dy});
    context->set_fused_kernels(true);
    return Gradients{doubles(grad_of(x)), doubles(grad_of(of_queries)), doubles(grad_of(of_keys))};
  };
  const Gradients fused = gradients(true), composed = gradients(false);
  EXPECT_LT(relative_error(fused.x, composed.x), 1e-13);
  EXPECT_LT(relative_error(fused.of_queries, composed.of_queries), 1e-13);
  EXPECT_LT(relative_error(fused.of_keys, composed.of_keys), 1e-13);
}

TEST(QkNorm, BadInputIsNamed) {
  const auto context = cpu_context();
  const Tensor x = filled(*context, {3, 12}, 1), gamma = filled(*context, {4}, 1),
               wrong = filled(*context, {3}, 1), matrix = filled(*context, {2, 2}, 1);
  const auto refused = [&](const char* text, const Tensor& in, const Tensor& of_queries,
                           const Tensor& of_keys, int64_t queries, int64_t keys) {
    expect_error(ErrorCode::shape_mismatch, text,
                 [&] { ops::qk_norm(*context, in, of_queries, of_keys, queries, keys, 1e-6); });
  };
  refused("query_gamma must be a vector whose size divides query_width (4)", x, wrong, gamma, 4, 4);
  refused("key_gamma must be a vector whose size divides key_width (8)", x, gamma, wrong, 4, 8);
  refused("key_gamma must be a vector", x, gamma, matrix, 4, 4);
  refused("query_gamma must be a vector", x, gamma, gamma, 0, 4);
  refused("at least 8 columns of queries and 8 of keys", x, gamma, gamma, 8, 8);
  refused("x must be [T, C]", gamma, gamma, gamma, 4, 4);
  expect_error(ErrorCode::invalid_argument, "epsilon must lie between 0 and 1",
               [&] { ops::qk_norm(*context, x, gamma, gamma, 4, 4, 1); });
}

// Widths beside the pack of a thread, and rows that several blocks sum.
TEST(QkNormCuda, ShapesOfEveryKind) {
  const auto device = cuda_context();
  if (!device) GTEST_SKIP() << "TRAFO_TEST_DEVICE is not cuda";
  const auto host = cpu_context();
  for (const auto& [rows, heads, width] : {std::tuple<int64_t, int64_t, int64_t>{1, 1, 2},
                                           {333, 3, 128},
                                           {5000, 2, 64},
                                           {70, 5, 33},
                                           {40, 2, 1032}}) {
    const int64_t columns = heads * width;
    const auto run = [&](Context& context, DType dtype) {
      InputMaker make(context, dtype, 11);
      std::vector<Tensor> leaves = {make.uniform({rows, 3 * columns}),
                                    make.uniform({width}, 0.5, 1.5),
                                    make.uniform({width}, 0.5, 1.5)};
      const Tensor dy = make.uniform({rows, 3 * columns});
      for (Tensor& leaf : leaves) set_requires_grad(leaf, true);
      const Tensor y =
          ops::qk_norm(context, leaves[0], leaves[1], leaves[2], columns, columns, 1e-6);
      context.tape().backward(context, std::vector{y}, std::vector{dy});
      std::vector<std::vector<double>> results;
      for (const Tensor& each : {y, grad_of(leaves[0]), grad_of(leaves[1]), grad_of(leaves[2])}) {
        if (each.dtype() == DType::f64) {
          results.push_back(context.values<double>(each));
          continue;
        }
        const std::vector<float> values = context.values<float>(each);
        results.emplace_back(values.begin(), values.end());
      }
      return results;
    };
    const auto expected = run(*host, DType::f64), found = run(*device, DType::f32);
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_LT(relative_error(found[i], expected[i]), 2e-5) << rows << " " << width << " " << i;
    EXPECT_EQ(run(*device, DType::f32), found);
  }
}

}  // namespace
}  // namespace trafo::testing
