#include "engine/ops/view/view.h"

#include <gtest/gtest.h>

#include <numeric>

#include "engine/ops/op_kernel.h"
#include "tests/support/errors.h"

namespace trafo {
namespace {

class ViewTest : public ::testing::Test {
 protected:
  Tensor counting(const Shape& shape) {
    std::vector<float> values(static_cast<size_t>(element_count(shape)));
    std::iota(values.begin(), values.end(), 0.0f);
    return context_->from_values<float>(values, shape);
  }
  std::vector<float> values(const Tensor& x) {
    return context_->values<float>(ops::contiguous(*context_, x));
  }
  Context& c() { return *context_; }
  std::unique_ptr<Context> context_ = make_context({DeviceKind::cpu, 0}, 2);
};

TEST_F(ViewTest, ViewsShareMemoryWhereStridesAllow) {
  const Tensor x = counting({2, 3, 8});
  const auto shares = [&](const Tensor& y) { return y.storage() == x.storage(); };
  EXPECT_TRUE(same_tensor(ops::contiguous(c(), x), x));
  EXPECT_TRUE(shares(ops::reshape(c(), x, {6, -1})));
  EXPECT_TRUE(shares(ops::transpose(c(), x, 0, -1)));
  const Tensor part = ops::slice(c(), x, 2, 4, 8);
  EXPECT_TRUE(shares(part));
  EXPECT_TRUE(shares(ops::reshape(c(), part, {6, 2, 2})));  // rows merge, columns split
  EXPECT_FALSE(shares(ops::reshape(c(), part, {2, 12})));   // rows are 8 apart, not 4
  EXPECT_TRUE(shares(ops::reshape(c(), part, {1, 2, 3, 1, 4, 1})));
  EXPECT_FALSE(shares(ops::reshape(c(), ops::transpose(c(), x, 0, 1), {6, 8})));
}

TEST_F(ViewTest, ReshapeOfAViewKeepsTheOrderOfElements) {
  const Tensor part = ops::slice(c(), counting({2, 3, 8}), 2, 4, 8);
  const auto expected = values(part);
  for (const Shape& shape :
       {Shape{6, 2, 2}, Shape{2, 12}, Shape{24}, Shape{3, 2, 4}, Shape{1, 6, 4}})
    EXPECT_EQ(values(ops::reshape(c(), part, shape)), expected) << shape.str();
}

TEST_F(ViewTest, TransposedCopiesOfLargeTensors) {
  for (const Shape& shape : {Shape{300, 301}, Shape{7, 1000}, Shape{1000, 3}, Shape{5, 65, 33}}) {
    const Tensor x = counting(shape);
    const int rank = shape.rank();
    const auto y = values(ops::transpose(c(), x, rank - 2, rank - 1));
    const int64_t rows = x.dim(-2), cols = x.dim(-1), batch = x.numel() / (rows * cols);
    int64_t wrong = 0;
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t i = 0; i < cols; ++i)
        for (int64_t j = 0; j < rows; ++j)
          wrong += y[static_cast<size_t>((b * cols + i) * rows + j)] !=
                   static_cast<float>((b * rows + j) * cols + i);
    EXPECT_EQ(wrong, 0) << shape.str();
  }
}

TEST_F(ViewTest, EveryDtypeIsCopied) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::i32}) {
    std::vector<std::byte> bytes(6 * dtype_size(dtype));
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i + 1);
    const Tensor x = c().from_host(bytes.data(), bytes.size(), {2, 3}, dtype);
    const Tensor back =
        ops::transpose(c(), ops::contiguous(c(), ops::transpose(c(), x, 0, 1)), 0, 1);
    std::vector<std::byte> out(bytes.size());
    c().to_host(ops::contiguous(c(), back), out.data(), out.size());
    EXPECT_EQ(out, bytes) << dtype_name(dtype);
  }
}

TEST_F(ViewTest, AccumulateAddsInPlace) {
  const Tensor x = counting({40000}), y = counting({40000});
  accumulate_into(c(), x, y);
  int64_t wrong = 0;
  for (int64_t i = 0; i < 40000; ++i) wrong += x.data<float>()[i] != 2.0f * static_cast<float>(i);
  EXPECT_EQ(wrong, 0);
  const BFloat16 narrow[] = {BFloat16::from_float(1.5f), BFloat16::from_float(-2)};
  const Tensor a = c().from_values<BFloat16>(narrow, {2}),
               b = c().from_values<BFloat16>(narrow, {2});
  accumulate_into(c(), a, b);
  EXPECT_EQ(a.data<BFloat16>()[0].to_float(), 3.0f);
  EXPECT_EQ(a.data<BFloat16>()[1].to_float(), -4.0f);
}

TEST_F(ViewTest, Errors) {
  const Tensor x = counting({2, 3});
  EXPECT_EQ(code_of([&] { ops::reshape(c(), x, {4, -1}); }), ErrorCode::shape_mismatch);
  EXPECT_EQ(code_of([&] { ops::reshape(c(), x, {-1, -1}); }), ErrorCode::shape_mismatch);
  EXPECT_EQ(code_of([&] { ops::reshape(c(), x, {-2, 3}); }), ErrorCode::shape_mismatch);
  EXPECT_EQ(code_of([&] {
              ops::reshape(c(), counting({0, 3}), {0, -1});
            }),
            ErrorCode::shape_mismatch);
  EXPECT_EQ(code_of([&] { ops::transpose(c(), x, 0, 2); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { ops::slice(c(), x, 0, 1, 3); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { ops::slice(c(), x, 0, 2, 1); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { ops::concat(c(), {}, 0); }), ErrorCode::invalid_argument);
  const std::vector<Tensor> uneven{x, counting({3, 2})};
  EXPECT_EQ(code_of([&] { ops::concat(c(), uneven, 0); }), ErrorCode::shape_mismatch);
  const std::vector<Tensor> mixed{x, c().zeros({2, 3}, DType::f64)};
  EXPECT_EQ(code_of([&] { ops::concat(c(), mixed, 0); }), ErrorCode::dtype_mismatch);
  EXPECT_EQ(code_of([&] { ops::contiguous(c(), {}); }), ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace trafo
