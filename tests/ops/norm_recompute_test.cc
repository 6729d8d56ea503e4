// The outputs of norms that backward computes once more (Recompute::selective) are those that
// forward wrote, bit for bit, on every kernel that writes them.
#include <cmath>

#include "engine/ops/bias_dropout_residual/bias_dropout_residual.h"
#include "engine/ops/layer_norm/layer_norm.h"
#include "engine/ops/matmul/matmul.h"
#include "tests/ops/cuda/cuda_test.h"
#include "tests/ops/row_test.h"

namespace trafo::testing {
namespace {

std::vector<std::byte> bytes_of(const Context& context, const Tensor& tensor) {
  std::vector<std::byte> out(tensor.bytes());
  context.to_host(tensor, out.data(), out.size());
  return out;
}

class NormInputs {
 public:
  NormInputs(Context& context, DType dtype, int64_t rows, int64_t width)
      : context_(context), dtype_(dtype) {
    // Means, spreads and outliers that differ from row to row.
    std::vector<double> x(static_cast<size_t>(rows * width)), side(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      const size_t row = i / static_cast<size_t>(width);
      x[i] = row % 4 == 3 ? 1000 + random_.normal() : random_.normal() * (row % 4 == 2 ? 30 : 1);
      if (row % 4 == 1 && i % static_cast<size_t>(width) == 0) x[i] = 1e4;
      side[i] = random_.normal();
    }
    in = tensor(x, {rows, width});
    residual = tensor(side, {rows, width});
    gamma = vector(width);
    beta = vector(width);
    bias = vector(width);
    set_requires_grad(in, true);
  }
  Tensor vector(int64_t width) {
    std::vector<double> values(static_cast<size_t>(width));
    for (double& value : values) value = random_.normal();
    return tensor(values, {width});
  }

  Tensor in, residual, gamma, beta, bias;

 private:
  Tensor tensor(const std::vector<double>& values, const Shape& shape) {
    return context_.from_doubles(values, shape, dtype_);
  }
  Context& context_;
  DType dtype_;
  PhiloxStream random_{3, 9};
};

void expect_same_again(Context& context, DType dtype, int64_t rows, int64_t width) {
  SCOPED_TRACE(std::string(dtype_name(dtype)) + ", width " + std::to_string(width));
  const StepScope selective(context, &StepContext::recompute, Recompute::selective);
  NormInputs data(context, dtype, rows, width);
  const auto check = [&](const Tensor& normed, const char* what) {
    ASSERT_TRUE(normed.variable() && normed.variable()->recompute) << what;
    const Tensor again = normed.variable()->recompute(context);
    EXPECT_EQ(again.shape(), normed.shape());
    EXPECT_NE(again.raw(), normed.raw());
    EXPECT_TRUE(bytes_of(context, again) == bytes_of(context, normed)) << what;
  };
  check(ops::layer_norm(context, data.in, data.gamma, data.beta), "layer norm");
  const auto add_norm = [&](const Tensor& bias, const Dropout& dropout) {
    return ops::bias_dropout_residual_norm(context, data.in, bias, data.residual, data.gamma,
                                           data.beta, 1e-5, dropout)
        .normed;
  };
  check(add_norm(data.bias, {}), "add-norm");
  check(add_norm({}, {}), "add-norm without a bias");
  Dropout dropout;
  dropout.p = 0.3f;
  check(add_norm(data.bias, dropout), "add-norm with dropout");
  context.tape().clear();
}

TEST(NormRecompute, TheBitsOfForward) {
  const auto context = cpu_context(2);
  for (const DType dtype : {DType::f32, DType::f64})
    for (const int64_t width : {1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 127, 768, 1001, 4097})
      expect_same_again(*context, dtype, 9, width);
}

TEST(NormRecompute, OnlyWhereItIsWanted) {
  const auto context = cpu_context();
  NormInputs data(*context, DType::f32, 4, 8);
  EXPECT_FALSE(ops::layer_norm(*context, data.in, data.gamma, data.beta).variable()->recompute !=
               nullptr);
  const StepScope selective(*context, &StepContext::recompute, Recompute::selective);
  set_requires_grad(data.in, false);
  EXPECT_EQ(ops::layer_norm(*context, data.in, data.gamma, data.beta).variable(), nullptr);
}

TEST(NormRecompute, OnceForEveryProductAndTheSameGradients) {
  std::vector<std::vector<std::byte>> gradients[2];
  for (const Recompute recompute : {Recompute::none, Recompute::selective}) {
    const auto context = cpu_context();
    const StepScope scope(*context, &StepContext::recompute, recompute);
    NormInputs data(*context, DType::f32, 10, 24);
    std::vector<Tensor> weights;
    for (int i = 0; i < 2; ++i) {
      weights.push_back(context->from_doubles(doubles(data.vector(24 * 5)), {5, 24}, DType::f32));
      set_requires_grad(weights.back(), true);
    }
    set_requires_grad(data.gamma, true);
    const ops::ResidualNorm out = ops::bias_dropout_residual_norm(
        *context, data.in, data.bias, data.residual, data.gamma, data.beta, 1e-5, {});
    int calls = 0;
    auto& recompute_fn = out.normed.variable()->recompute;
    if (recompute_fn)
      recompute_fn = [&calls, first = recompute_fn](Context& ctx) {
        ++calls;
        return first(ctx);
      };
    const Tensor one = ops::linear(*context, out.normed, weights[0], {}),
                 two = ops::linear(*context, out.normed, weights[1], {});
    const Tensor product = ops::matmul(*context, one, two, {.transpose_b = true});
    context->backward(product, filled(*context, {10, 10}, 0.25f));
    EXPECT_EQ(calls, recompute == Recompute::selective ? 2 : 0);
    for (const Tensor& t : {data.in, data.gamma, weights[0], weights[1]})
      gradients[recompute == Recompute::selective].push_back(bytes_of(*context, grad_of(t)));
  }
  EXPECT_TRUE(gradients[0] == gradients[1]);
}

class NormRecomputeOnCuda : public CudaTest {};

// Rows in a warp, in a block, too long for registers, and of widths that fill no 16 bytes.
TEST_F(NormRecomputeOnCuda, TheBitsOfForward) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int64_t width : {1, 3, 8, 37, 128, 256, 384, 512, 768, 1001, 1024, 1280, 2048, 4096,
                                8192, 8200, 16384, 16392, 20001})
      expect_same_again(*context_, dtype, 261, width);
}

}  // namespace
}  // namespace trafo::testing
