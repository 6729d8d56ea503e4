#include "engine/ops/pointwise/pointwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/ops/op_kernel.h"
#include "tests/ops/cuda/cuda_test.h"

namespace trafo {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNaN = std::nanf("");

using Floats = std::vector<float>;
using Ints = std::vector<int32_t>;

Tensor vector_of(Context& context, const Floats& values) {
  return context.from_values<float>(values, {static_cast<int64_t>(values.size())});
}

void expect_same(const Floats& actual, const Floats& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i)
    EXPECT_TRUE(std::isnan(expected[i]) ? std::isnan(actual[i]) : actual[i] == expected[i])
        << i << ": " << actual[i] << " in place of " << expected[i];
}

// Results and gradients at special values: what IEEE 754 and the comments of the header say.
void check_special_values(Context& context) {
  Tensor x = vector_of(context, {0, -kInf, kInf, kNaN, -2, 3});
  set_requires_grad(x, true);
  const auto check = [&](const Tensor& y, const Floats& values, const Floats& gradient) {
    expect_same(context.values<float>(y), values);
    zero_grad(x);
    context.backward(y, vector_of(context, {1, 1, 1, 1, 1, 1}));
    expect_same(context.values<float>(grad_of(x)), gradient);
  };
  check(ops::abs(context, x), {0, kInf, kInf, kNaN, 2, 3}, {0, -1, 1, kNaN, -1, 1});
  check(ops::clamp(context, x, -2, 2), {0, -2, 2, kNaN, -2, 2}, {1, 0, 0, 0, 1, 0});
  check(ops::power(context, x, 2), {0, kInf, kInf, kNaN, 4, 9}, {0, -kInf, kInf, kNaN, -4, 6});
  check(ops::power(context, x, 0), {1, 1, 1, 1, 1, 1}, {0, 0, 0, 0, 0, 0});
  const Tensor one = vector_of(context, {0, 1, 1, 1, kNaN, 3});
  check(ops::maximum(context, x, one), {0, 1, kInf, kNaN, kNaN, 3}, {0.5f, 0, 1, 1, 1, 0.5f});
  const Tensor tails = ops::gelu_erf(context, x);
  const Floats y = context.values<float>(tails);
  EXPECT_EQ(y[1], 0);
  EXPECT_EQ(y[2], kInf);
  EXPECT_TRUE(std::isnan(y[3]));
  zero_grad(x);
  context.backward(tails, vector_of(context, {1, 1, 1, 1, 1, 1}));
  const Floats g = context.values<float>(grad_of(x));
  EXPECT_EQ(g[0], 0.5f);
  EXPECT_EQ(g[1], 0);
  EXPECT_EQ(g[2], 1);
  EXPECT_TRUE(std::isnan(g[3]));
  // An operand that is not chosen affects nothing.
  const Tensor mask = context.from_values<int32_t>(Ints{1, 0, 0, 0, 7, -1}, {6});
  check(ops::where(context, mask, x, one), {0, 1, 1, 1, -2, 3}, {1, 0, 0, 0, 1, 1});
}

void check_comparisons(Context& context) {
  const Tensor a = vector_of(context, {1, 2, 3, kNaN}), b = vector_of(context, {2});
  const auto check = [&](Comparison comparison, const Ints& expected) {
    EXPECT_EQ(context.values<int32_t>(ops::compare(context, a, b, comparison)), expected);
    EXPECT_EQ(context.values<int32_t>(ops::compare(context, a, 2.0, comparison)), expected);
  };
  check(Comparison::equal, {0, 1, 0, 0});
  check(Comparison::not_equal, {1, 0, 1, 1});
  check(Comparison::less, {1, 0, 0, 0});
  check(Comparison::less_equal, {1, 1, 0, 0});
  check(Comparison::greater, {0, 0, 1, 0});
  check(Comparison::greater_equal, {0, 1, 1, 0});
  // Integers that float32 does not tell apart.
  const Tensor large = context.from_values<int32_t>(Ints{1 << 24, (1 << 24) + 1}, {2});
  EXPECT_EQ(context.values<int32_t>(
                ops::compare(context, large, double{(1 << 24) + 1}, Comparison::equal)),
            (Ints{0, 1}));
  const Tensor filled = ops::masked_fill(
      context, large, context.from_values<int32_t>(Ints{1, 0}, {2}), (1 << 24) + 3);
  EXPECT_EQ(context.values<int32_t>(filled), (Ints{(1 << 24) + 3, (1 << 24) + 1}));
}

TEST(Pointwise, SpecialValues) {
  check_special_values(*make_context({DeviceKind::cpu, 0}, 1));
}
TEST(Pointwise, Comparisons) {
  check_comparisons(*make_context({DeviceKind::cpu, 0}, 1));
}

class PointwiseOnCuda : public testing::CudaTest {};

TEST_F(PointwiseOnCuda, SpecialValues) {
  check_special_values(*context_);
}
TEST_F(PointwiseOnCuda, Comparisons) {
  check_comparisons(*context_);
}

TEST(Pointwise, Errors) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const Tensor x = context->zeros({2, 3}, DType::f32), n = context->zeros({3}, DType::i32);
  const auto expect = [&](ErrorCode code, const char* text, auto run) {
    try {
      run(*context);
      ADD_FAILURE() << "no error: " << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_NE(error.message().find(text), std::string::npos) << error.what();
    }
  };
  const Tensor wrong = context->zeros({2}, DType::f32), wide = context->zeros({3}, DType::f64);
  expect(ErrorCode::shape_mismatch, "[2, 3] and [2]",
         [&](Context& c) { ops::maximum(c, x, wrong); });
  expect(ErrorCode::dtype_mismatch, "b is float64", [&](Context& c) { ops::pow(c, x, wide); });
  expect(ErrorCode::dtype_mismatch, "it is int32", [&](Context& c) { ops::abs(c, n); });
  expect(ErrorCode::dtype_mismatch, "mask must be int32",
         [&](Context& c) { ops::where(c, x, x, x); });
  expect(ErrorCode::invalid_argument, "mask is undefined",
         [&](Context& c) { ops::masked_fill(c, x, {}, 1); });
  expect(ErrorCode::invalid_argument, "b is undefined",
         [&](Context& c) { ops::minimum(c, x, {}); });
  expect(ErrorCode::invalid_argument, "got 2 and 1", [&](Context& c) { ops::clamp(c, x, 2, 1); });
  expect(ErrorCode::invalid_argument, "0.5 is no int32",
         [&](Context& c) { ops::compare(c, n, 0.5, Comparison::less); });
  expect(ErrorCode::shape_mismatch, "its shape is [2]",
         [&](Context& c) { ops::tril(c, wrong, 0); });
}

}  // namespace
}  // namespace trafo
