#include "engine/ops/swiglu/swiglu.h"

#include <cmath>

#include "tests/ops/row_test.h"

namespace trafo::testing {
namespace {

TEST(Swiglu, TheFirstHalfIsTheGate) {
  const auto context = cpu_context();
  const std::vector<double> x = {1, -2, 0, 3, 5, 7};
  const Tensor y = ops::swiglu(*context, context->from_values<double>(x, {1, 6}));
  const auto silu = [](double v) { return v / (1 + std::exp(-v)); };
  EXPECT_LT(relative_error(doubles(y), {3 * silu(1), 5 * silu(-2), 0}), 1e-14);
}

TEST(Swiglu, FarFromZeroNothingOverflows) {
  const auto context = cpu_context();
  Tensor x = context->from_values<float>(std::vector<float>{-200, 200, 3, 3}, {1, 4});
  set_requires_grad(x, true);
  const Tensor y = ops::swiglu(*context, x);
  EXPECT_EQ(doubles(y)[0], 0);
  EXPECT_EQ(doubles(y)[1], 600);
  context->backward(y, filled(*context, {1, 2}, 1));
  for (const double g : doubles(grad_of(x))) EXPECT_TRUE(std::isfinite(g)) << g;
}

TEST(Swiglu, ComputedAgainItHasTheSameBits) {
  const auto context = cpu_context();
  const StepScope selective(*context, &StepContext::recompute, Recompute::selective);
  InputMaker make(*context, DType::f32, 3);
  Tensor x = make.uniform({7, 46}, -4, 4);
  set_requires_grad(x, true);
  const Tensor y = ops::swiglu(*context, x);
  ASSERT_TRUE(y.variable()->recompute);
  EXPECT_EQ(doubles(y.variable()->recompute(*context)), doubles(y));
  context->tape().clear();
}

TEST(Swiglu, BadInputIsNamed) {
  const auto context = cpu_context();
  expect_error(ErrorCode::shape_mismatch, "must be even", [&] {
    ops::swiglu(*context, filled(*context, {2, 5}, 1));
  });
}

}  // namespace
}  // namespace trafo::testing
