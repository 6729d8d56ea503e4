#include "engine/ops/embedding/embedding.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/ops/binary/binary.h"
#include "engine/ops/masks/masks.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/unary/unary.h"

namespace trafo {
namespace {

class EmbeddingTest : public ::testing::Test {
 protected:
  Tensor ints(std::vector<int32_t> values) {
    return context_->from_values<int32_t>(values, {static_cast<int64_t>(values.size())});
  }
  Tensor table(int64_t rows, int64_t width) {
    std::vector<float> values(static_cast<size_t>(rows * width));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) + 1;
    return context_->from_values<float>(values, {rows, width});
  }
  std::string message(const std::function<void()>& call, ErrorCode code) {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      return error.what();
    }
    ADD_FAILURE() << "no error";
    return {};
  }
  std::unique_ptr<Context> context_ = make_context({DeviceKind::cpu, 0}, 2);
};

TEST_F(EmbeddingTest, NamesTheFirstIdOutOfRange) {
  const Tensor rows = table(4, 2);
  for (const int32_t bad : {4, -1}) {
    const std::string text = message(
        [&] {
          ops::embedding(*context_, ints({0, 3, bad, 9}), rows);
        },
        ErrorCode::invalid_argument);
    EXPECT_NE(text.find("[embedding] id " + std::to_string(bad) + " of token 2"), std::string::npos)
        << text;
  }
}

TEST_F(EmbeddingTest, IsAProductWithOneHotRows) {
  const Tensor ids = ints({3, 0, 3, 3, 1}), positions = ints({0, 1, 2, 0, 1});
  std::vector<std::vector<float>> expected;
  for (const int way : {0, 1, 2}) {
    Tensor rows = table(5, 3), places = table(4, 3);
    set_requires_grad(rows, true);
    set_requires_grad(places, true);
    context_->set_fused_kernels(way != 2);
    ops::EmbeddingOptions options;
    options.scale = 4;
    options.positions = positions;
    options.position_table = places;
    const auto picked = [&](const Tensor& of, const Tensor& indices) {
      return ops::matmul(*context_, ops::one_hot(*context_, indices, of.dim(0), -1, DType::f32),
                         of);
    };
    const Tensor y = way == 0 ? ops::add(*context_, ops::scale(*context_, picked(rows, ids), 4),
                                         picked(places, positions))
                              : ops::embedding(*context_, ids, rows, options);
    context_->backward(y, y.detach());
    const std::vector<std::vector<float>> got{context_->values<float>(y),
                                              context_->values<float>(grad_of(rows)),
                                              context_->values<float>(grad_of(places))};
    if (way == 0)
      expected = got;
    else
      EXPECT_EQ(got, expected) << way;
  }
}

TEST_F(EmbeddingTest, PaddingGivesTheTableNoGradient) {
  for (const bool fused : {true, false}) {
    context_->set_fused_kernels(fused);
    Tensor rows = table(3, 2), places = table(2, 2);
    set_requires_grad(rows, true);
    set_requires_grad(places, true);
    ops::EmbeddingOptions options;
    options.padding_id = 1;
    options.positions = ints({0, 1, 1, 0});
    options.position_table = places;
    const Tensor y = ops::embedding(*context_, ints({1, 2, 1, 0}), rows, options);
    context_->backward(
        y, context_->from_values<float>(std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8}, {4, 2}));
    EXPECT_EQ(context_->values<float>(grad_of(rows)), (std::vector<float>{7, 8, 0, 0, 3, 4}));
    EXPECT_EQ(context_->values<float>(grad_of(places)), (std::vector<float>{8, 10, 8, 10}));
    EXPECT_EQ(context_->values<float>(y), (std::vector<float>{4, 6, 8, 10, 6, 8, 2, 4}));
  }
  for (const int64_t bad : {3, -2}) {
    ops::EmbeddingOptions options;
    options.padding_id = bad;
    EXPECT_NE(message([&] { ops::embedding(*context_, ints({0}), table(3, 2), options); },
                      ErrorCode::invalid_argument)
                  .find("padding_id " + std::to_string(bad)),
              std::string::npos);
  }
}

TEST_F(EmbeddingTest, ChecksPositionsAndTypes) {
  const Tensor rows = table(4, 2);
  ops::EmbeddingOptions options;
  options.position_table = table(3, 2);
  message([&] { ops::embedding(*context_, ints({0}), rows, options); },
          ErrorCode::invalid_argument);
  options.positions = ints({3});
  EXPECT_NE(message([&] { ops::embedding(*context_, ints({0}), rows, options); },
                    ErrorCode::invalid_argument)
                .find("position 3 of token 0"),
            std::string::npos);
  options.positions = ints({1, 2});
  message([&] { ops::embedding(*context_, ints({0}), rows, options); }, ErrorCode::shape_mismatch);
  message(
      [&] {
        ops::embedding(*context_, ints({0}), context_->empty({4, 2}, DType::bf16));
      },
      ErrorCode::dtype_mismatch);
  message([&] { ops::embedding(*context_, table(1, 1), rows); }, ErrorCode::shape_mismatch);
}

TEST_F(EmbeddingTest, DropsTheElementsThatPhiloxSays) {
  const int64_t tokens = 700,
                width = 33;  // several blocks of work, none starting on a Philox block
  const Tensor rows = table(5, width);
  std::vector<int32_t> ids;
  for (int32_t t = 0; t < tokens; ++t) ids.push_back(t % 5);
  ops::EmbeddingOptions options;
  options.dropout = Dropout{0.2f, 5, 6, 7};
  options.scale = 2;
  const auto y = context_->values<float>(ops::embedding(*context_, ints(ids), rows, options));
  for (int64_t i = 0; i < tokens * width; ++i) {
    const float value =
        static_cast<float>(ids[static_cast<size_t>(i / width)] * width + i % width + 1) * 2;
    const float expected = dropout_keeps(options.dropout, i)
                               ? value * static_cast<float>(options.dropout.scale())
                               : 0.0f;
    ASSERT_EQ(y[static_cast<size_t>(i)], expected) << i;
  }
}

TEST_F(EmbeddingTest, OneTensorAsBothTables) {
  Tensor rows = table(3, 2);
  set_requires_grad(rows, true);
  ops::EmbeddingOptions options;
  options.positions = ints({1, 1});
  options.position_table = rows;
  const Tensor y = ops::embedding(*context_, ints({0, 1}), rows, options);
  context_->backward(y, context_->from_values<float>(std::vector<float>{1, 2, 3, 4}, {2, 2}));
  EXPECT_EQ(context_->values<float>(grad_of(rows)), (std::vector<float>{1, 2, 7, 10, 0, 0}));
}

TEST_F(EmbeddingTest, SinusoidalPositionsHaveSinesThenCosines) {
  const auto even = context_->values<double>(sinusoidal_positions(*context_, 3, 4, DType::f64));
  EXPECT_DOUBLE_EQ(even[8], std::sin(2.0));
  EXPECT_DOUBLE_EQ(even[9], std::sin(2.0 / 100));
  EXPECT_DOUBLE_EQ(even[10], std::cos(2.0));
  EXPECT_DOUBLE_EQ(even[11], std::cos(2.0 / 100));
  const auto odd = context_->values<double>(sinusoidal_positions(*context_, 2, 3, DType::f64));
  EXPECT_DOUBLE_EQ(odd[4], std::sin(std::pow(10000.0, -2.0 / 3)));
  EXPECT_DOUBLE_EQ(odd[5], std::cos(1.0));
}

}  // namespace
}  // namespace trafo
