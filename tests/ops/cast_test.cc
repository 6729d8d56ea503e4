#include "engine/ops/cast/cast.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/ops/op_kernel.h"
#include "engine/ops/reduce/reduce.h"

namespace trafo {
namespace {

TEST(Cast, Float64ToBFloat16IsRoundedOnce) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  // 1 + 2^-8 is half-way between two bfloat16 numbers; a little more must go up, a little less
  // down, and a float32 in between cannot tell.
  const double half = 1 + 0x1p-8, little = 0x1p-40;
  const std::vector<double> x = {half,
                                 half + little,
                                 half - little,
                                 -half - little,
                                 1e300,
                                 -1e300,
                                 std::numeric_limits<double>::infinity(),
                                 0.0};
  const Tensor y = ops::cast(
      *context, context->from_values<double>(x, {static_cast<int64_t>(x.size())}), DType::bf16);
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> expected = {1, 1 + 0x1p-7f, 1, -1 - 0x1p-7f, inf, -inf, inf, 0};
  for (size_t i = 0; i < x.size(); ++i)
    EXPECT_EQ(y.data<BFloat16>()[i].to_float(), expected[i]) << x[i];
}

TEST(Cast, Float32ToBFloat16AndBackRoundsToNearestEven) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const std::vector<float> x = {1,     1 + 0x1p-8f,  1 + 3 * 0x1p-8f, -3.14159265f,
                                65504, std::nanf("")};
  const Tensor narrow = ops::cast(*context, context->from_values<float>(x, {6}), DType::bf16);
  const auto y = context->values<float>(ops::cast(*context, narrow, DType::f32));
  EXPECT_EQ(y[0], 1);
  EXPECT_EQ(y[1], 1);
  EXPECT_EQ(y[2], 1 + 0x1p-6f);
  EXPECT_EQ(y[3], -3.140625f);
  EXPECT_EQ(y[4], 65536);
  EXPECT_TRUE(std::isnan(y[5]));
}

TEST(Cast, GradientsTakeTheDtypeOfTheirTensor) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const std::vector<float> values = {1, 2, 3};
  Tensor x = ops::cast(*context, context->from_values<float>(values, {3}), DType::bf16);
  set_requires_grad(x, true);
  for (int i = 0; i < 2; ++i)
    context->backward(ops::sum(*context, ops::cast(*context, x, DType::f32)));
  ASSERT_EQ(grad_of(x).dtype(), DType::bf16);
  EXPECT_EQ(context->values<BFloat16>(grad_of(x))[1].to_float(), 2);
}

TEST(Cast, IntegersAreRoundedTowardsZeroAndKeptInRange) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  constexpr int32_t kLeast = std::numeric_limits<int32_t>::min();
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<double> x = {1.75, -1.75, 1e20, -inf, std::nan(""), 2147483647, -0.5};
  const std::vector<int32_t> expected = {1, -1, kMost, kLeast, 0, kMost, 0};
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    Tensor from = context->from_doubles(x, {7}, dtype);
    set_requires_grad(from, true);
    const Tensor to = ops::cast(*context, from, DType::i32);
    EXPECT_EQ(context->values<int32_t>(to), expected) << dtype_name(dtype);
    EXPECT_FALSE(requires_grad(to));
  }
  const std::vector<int32_t> numbers = {0, -7, (1 << 24) + 1, kLeast};
  const Tensor n = context->from_values<int32_t>(numbers, {4});
  EXPECT_EQ(context->values<double>(ops::cast(*context, n, DType::f64)),
            (std::vector<double>{0, -7, 16777217, -2147483648.0}));
  EXPECT_EQ(context->values<float>(ops::cast(*context, n, DType::f32))[2], 16777216.0f);
  // Half-way and a little more: rounded once.
  const std::vector<int32_t> above = {(1 << 24) + (1 << 16) + 1};
  const Tensor narrow = ops::cast(*context, context->from_values<int32_t>(above, {1}), DType::bf16);
  EXPECT_EQ(context->values<BFloat16>(narrow)[0].to_float(), 16777216.0f + 131072.0f);
}

}  // namespace
}  // namespace trafo
