#include "engine/ops/bias_dropout_residual/bias_dropout_residual.h"

#include "tests/ops/row_test.h"

namespace trafo::testing {
namespace {

TEST(BiasDropoutResidual, MaskIsTheOneOfPhilox) {
  for (const int64_t width : {1, 3, 8, 33, 512, 1000, 2049}) {
    for (const bool norm : {false, true}) {
      const auto context = cpu_context(2);
      const int64_t rows = 20000 / width + 1;
      const Dropout dropout{0.3f, 0xfeedfacecafebeefull, 1234567, 89};
      Tensor x = filled(*context, {rows, width}, 1);
      set_requires_grad(x, true);
      const Tensor residual = filled(*context, {rows, width}, 0);
      const Tensor vector = filled(*context, {width}, 1);
      const Tensor sum = norm ? ops::bias_dropout_residual_norm(*context, x, {}, residual, vector,
                                                                vector, 1e-5, dropout)
                                    .sum
                              : ops::bias_dropout_residual(*context, x, {}, residual, dropout);
      context->backward(sum, filled(*context, {rows, width}, 1));
      const float scale = static_cast<float>(dropout.scale());
      const Tensor gradient = grad_of(x);
      int64_t wrong = 0;
      for (int64_t i = 0; i < rows * width; ++i) {
        const float expected = dropout_keeps(dropout, i) ? scale : 0;
        wrong += sum.data<float>()[i] != expected || gradient.data<float>()[i] != expected;
      }
      EXPECT_EQ(wrong, 0) << "width " << width << (norm ? ", norm" : "");
    }
  }
}

// Typical and awkward widths, many rows: float32 against the reference path in float64.
TEST(BiasDropoutResidual, ManyRows) {
  for (const int64_t width : {1, 7, 33, 128, 512, 1003}) {
    const int64_t rows = 200000 / (width + 50);
    std::vector<std::vector<double>> results[2];
    for (const bool reference : {false, true}) {
      const auto context = cpu_context(2);
      context->set_fused_kernels(!reference);
      InputMaker make(*context, reference ? DType::f64 : DType::f32, 4);
      std::vector<Tensor> in{make.uniform({rows, width}), make.uniform({width}),
                             make.uniform({rows, width}), make.uniform({width}),
                             make.uniform({width})};
      const std::vector<Tensor> upstream{make.uniform({rows, width}), make.uniform({rows, width})};
      for (Tensor& t : in) set_requires_grad(t, true);
      const auto out = ops::bias_dropout_residual_norm(*context, in[0], in[1], in[2], in[3], in[4],
                                                       1e-2, Dropout{0.1f, 1, 2, 3});
      const std::vector<Tensor> roots{out.sum, out.normed};
      for (const Tensor& t : roots) results[reference].push_back(doubles(t));
      context->tape().backward(*context, roots, upstream);
      for (const Tensor& t : in) results[reference].push_back(doubles(grad_of(t)));
    }
    for (size_t i = 0; i < results[0].size(); ++i)
      EXPECT_LT(relative_error(results[0][i], results[1][i]), 3e-6)
          << "width " << width << ", result " << i;
  }
}

// Gradients of an output that nobody used cost nothing and leave gamma alone.
TEST(BiasDropoutResidual, UnusedOutputs) {
  const auto context = cpu_context();
  InputMaker make(*context, DType::f32, 4);
  Tensor x = make.uniform({5, 8}), gamma = make.uniform({8}), beta = make.uniform({8});
  for (Tensor* t : {&x, &gamma, &beta}) set_requires_grad(*t, true);
  const auto out =
      ops::bias_dropout_residual_norm(*context, x, {}, make.uniform({5, 8}), gamma, beta, 1e-5, {});
  context->backward(out.sum, filled(*context, {5, 8}, 2));
  EXPECT_FALSE(grad_of(gamma).defined());
  EXPECT_FALSE(grad_of(beta).defined());
  for (const float v : context->values<float>(grad_of(x))) EXPECT_EQ(v, 2);
}

TEST(BiasDropoutResidual, Errors) {
  const auto context = cpu_context();
  Context& c = *context;
  const Tensor x = filled(c, {2, 4}, 1), vector = filled(c, {4}, 1);
  expect_error(ErrorCode::shape_mismatch, "residual is [4, 2]", [&] {
    ops::bias_dropout_residual(c, x, {}, filled(c, {4, 2}, 1), {});
  });
  expect_error(ErrorCode::dtype_mismatch, "residual is float64", [&] {
    ops::bias_dropout_residual(c, x, {}, c.zeros({2, 4}, DType::f64), {});
  });
  expect_error(ErrorCode::shape_mismatch, "bias must be [4]",
               [&] { ops::bias_dropout_residual(c, x, filled(c, {3}, 1), x, {}); });
  expect_error(ErrorCode::invalid_argument, "gamma is undefined",
               [&] { ops::bias_dropout_residual_norm(c, x, {}, x, {}, vector, 1e-5, {}); });
  expect_error(ErrorCode::invalid_argument, "epsilon",
               [&] { ops::bias_dropout_residual_norm(c, x, {}, x, vector, vector, -1, {}); });
}

}  // namespace
}  // namespace trafo::testing
