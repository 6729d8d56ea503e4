#include "engine/ops/rms_norm/rms_norm.h"

#include "tests/ops/cuda/cuda_test.h"
#include "tests/ops/row_test.h"

namespace trafo::testing {
namespace {

std::vector<double> normal_values(int64_t count, uint64_t seed) {
  PhiloxStream random(seed, 4);
  std::vector<double> values(static_cast<size_t>(count));
  for (double& value : values)
    value = BFloat16::from_float(static_cast<float>(random.normal())).to_float();
  return values;
}

TEST(RmsNorm, KnownValues) {
  const auto context = cpu_context();
  const std::vector<float> x = {3, 4, 0, 0, 1, -1, 1, -1}, gamma = {1, 2, 3, 4};
  const Tensor y = ops::rms_norm(*context, context->from_values<float>(x, {2, 4}),
                                 context->from_values<float>(gamma, {4}), 1e-12);
  // The root mean square of (3, 4, 0, 0) is 2.5.
  const std::vector<double> expected = {1.2, 3.2, 0, 0, 1, -2, 3, -4};
  EXPECT_LT(relative_error(doubles(y), expected), 1e-6);
}

TEST(RmsNorm, EpsilonStandsInsideTheRoot) {
  const auto context = cpu_context();
  const Tensor y =
      ops::rms_norm(*context, filled(*context, {1, 8}, 0.1f), filled(*context, {8}, 1), 0.03);
  EXPECT_NEAR(doubles(y)[0], 0.1 / std::sqrt(0.01 + 0.03), 1e-6);
}

TEST(RmsNorm, BadInputIsNamed) {
  const auto context = cpu_context();
  const Tensor x = filled(*context, {3, 4}, 1), gamma = filled(*context, {4}, 1),
               narrow = filled(*context, {3}, 1);
  expect_error(ErrorCode::shape_mismatch, "gamma must be [4]",
               [&] { ops::rms_norm(*context, x, narrow, 1e-6); });
  expect_error(ErrorCode::invalid_argument, "epsilon must lie between 0 and 1",
               [&] { ops::rms_norm(*context, x, gamma, 0); });
  expect_error(ErrorCode::shape_mismatch, "residual is [4]",
               [&] { ops::residual_rms_norm(*context, x, gamma, gamma, 1e-6, {}); });
  Dropout dropout;
  dropout.p = 1.5f;
  expect_error(ErrorCode::invalid_argument, "dropout probability",
               [&] { ops::residual_rms_norm(*context, x, x, gamma, 1e-6, dropout); });
}

struct Results {
  std::vector<double> sum, normed, again, dx, dresidual, dgamma;
};

// Forward and backward of rows with a residual, and the norm computed once more.
Results run(Context& context, DType dtype, int64_t rows, int64_t width, float p, bool residual) {
  const StepScope selective(context, &StepContext::recompute, Recompute::selective);
  const int64_t count = rows * width;
  Tensor x = context.from_doubles(normal_values(count, 1), {rows, width}, dtype);
  Tensor side = context.from_doubles(normal_values(count, 2), {rows, width}, dtype);
  Tensor gamma = context.from_doubles(normal_values(width, 3), {width}, dtype);
  const Tensor dsum = context.from_doubles(normal_values(count, 5), {rows, width}, dtype);
  const Tensor dy = context.from_doubles(normal_values(count, 6), {rows, width}, dtype);
  for (Tensor* tensor : {&x, &side, &gamma}) set_requires_grad(*tensor, true);
  Dropout dropout;
  dropout.p = p;
  const auto host = [&](const Tensor& tensor) {
    if (!tensor.defined()) return std::vector<double>{};
    if (tensor.dtype() == DType::f64) return context.values<double>(tensor);
    std::vector<double> out;
    if (tensor.dtype() == DType::f32)
      for (const float v : context.values<float>(tensor)) out.push_back(v);
    else
      for (const BFloat16 v : context.values<BFloat16>(tensor)) out.push_back(v.to_float());
    return out;
  };
  Results result;
  ops::ResidualRmsNorm out;
  if (residual)
    out = ops::residual_rms_norm(context, x, side, gamma, 1e-6, dropout);
  else
    out = {{}, ops::rms_norm(context, x, gamma, 1e-6)};
  result.normed = host(out.normed);
  result.again = host(out.normed.variable()->recompute(context));
  const std::vector<Tensor> roots =
      residual ? std::vector{out.sum, out.normed} : std::vector{out.normed};
  const std::vector<Tensor> upstream = residual ? std::vector{dsum, dy} : std::vector{dy};
  result.sum = host(out.sum);
  context.tape().backward(context, roots, upstream);
  result.dx = host(grad_of(x));
  result.dresidual = host(grad_of(side));
  result.dgamma = host(grad_of(gamma));
  return result;
}

TEST(RmsNorm, ComputedAgainItHasTheSameBits) {
  const auto context = cpu_context(2);
  for (const DType dtype : {DType::f32, DType::f64})
    for (const int64_t width : {1, 2, 7, 16, 17, 33, 127, 768, 1001})
      for (const bool residual : {false, true}) {
        const Results once = run(*context, dtype, 9, width, residual ? 0.2f : 0, residual);
        EXPECT_EQ(once.normed, once.again) << width;
      }
}

TEST(RmsNorm, DropsWhatBiasDropoutResidualDrops) {
  const auto context = cpu_context();
  Dropout dropout;
  dropout.p = 0.4f;
  dropout.seed = 11;
  const Tensor x = filled(*context, {6, 40}, 1);
  const std::vector<float> zeros(240, 0);
  const Tensor residual = context->from_values<float>(zeros, {6, 40});
  const auto sum = doubles(
      ops::residual_rms_norm(*context, x, residual, filled(*context, {40}, 1), 1e-6, dropout).sum);
  for (size_t i = 0; i < sum.size(); ++i)
    ASSERT_EQ(sum[i] != 0, dropout_keeps(dropout, i)) << "element " << i;
}

// Only the sum is used, so its gradient passes the norm by. Each side may be a constant.
TEST(RmsNorm, GradientsOfTheSumAlone) {
  const auto context = cpu_context();
  Dropout dropout;
  dropout.p = 0.5f;
  dropout.seed = 11;
  const std::vector<double> upstream = normal_values(240, 5);
  const Tensor dsum = context->from_doubles(upstream, {6, 40}, DType::f64);
  for (const bool of_x : {false, true})
    for (const bool of_residual : {false, true}) {
      Tensor x = context->from_doubles(normal_values(240, 1), {6, 40}, DType::f64);
      Tensor residual = context->from_doubles(normal_values(240, 2), {6, 40}, DType::f64);
      Tensor gamma = context->from_doubles(normal_values(40, 3), {40}, DType::f64);
      set_requires_grad(x, of_x);
      set_requires_grad(residual, of_residual);
      set_requires_grad(gamma, true);
      const ops::ResidualRmsNorm out =
          ops::residual_rms_norm(*context, x, residual, gamma, 1e-6, dropout);
      if (!of_x && !of_residual) continue;
      const std::vector<Tensor> roots{out.sum}, gradients{dsum};
      context->tape().backward(*context, roots, gradients);
      ASSERT_EQ(grad_of(x).defined(), of_x);
      ASSERT_EQ(grad_of(residual).defined(), of_residual);
      if (of_residual) {
        EXPECT_EQ(context->values<double>(grad_of(residual)), upstream);
      }
      const auto dx = of_x ? context->values<double>(grad_of(x)) : std::vector<double>{};
      for (size_t i = 0; i < dx.size(); ++i)
        ASSERT_NEAR(dx[i], dropout_keeps(dropout, i) ? 2 * upstream[i] : 0, 1e-12) << i;
    }
}

class RmsNormOnCuda : public CudaTest {};

// Rows in a warp, in a block, too long for registers, and of widths that fill no 16 bytes.
TEST_F(RmsNormOnCuda, EqualsFloat64OnTheCpuForEveryWidth) {
  const auto host = cpu_context(2);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int64_t width : {1, 3, 8, 37, 128, 256, 384, 512, 768, 1001, 1024, 1280, 2048, 4096,
                                8192, 8200, 16384, 20001})
      for (const bool residual : {false, true}) {
        SCOPED_TRACE(std::string(dtype_name(dtype)) + ", width " + std::to_string(width));
        // A row of one element s comes out as s / sqrt(s^2 + 1e-6): what s, a rounded sum, is off
        // by counts up to a thousand times.
        const double tolerance = dtype == DType::bf16 ? 0x1p-6 : width == 1 ? 2e-4 : 2e-5;
        const float p = residual && width % 3 == 1 ? 0.25f : 0.0f;
        const int64_t rows = 133;
        const Results mine = run(*context_, dtype, rows, width, p, residual),
                      theirs = run(*host, DType::f64, rows, width, p, residual);
        EXPECT_EQ(mine.normed, mine.again);
        EXPECT_LT(relative_error(mine.normed, theirs.normed), tolerance);
        EXPECT_LT(relative_error(mine.dx, theirs.dx), tolerance);
        EXPECT_LT(relative_error(mine.dgamma, theirs.dgamma), tolerance);
        if (!residual) continue;
        EXPECT_LT(relative_error(mine.sum, theirs.sum), tolerance);
        EXPECT_LT(relative_error(mine.dresidual, theirs.dresidual), tolerance);
      }
  }
}

}  // namespace
}  // namespace trafo::testing
