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

TEST(Cast, IntegersAreNotConverted) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  EXPECT_THROW(ops::cast(*context, context->zeros({2}, DType::i32), DType::f32), Error);
  EXPECT_THROW(ops::cast(*context, context->zeros({2}, DType::f32), DType::i32), Error);
}

}  // namespace
}  // namespace trafo
