#include "engine/ops/bias_act_dropout/bias_act_dropout.h"

#include "tests/ops/row_test.h"

namespace trafo::testing {
namespace {

// relu(1 + 0) is 1 everywhere, so the output shows the mask.
TEST(BiasActDropout, MaskIsTheOneOfPhilox) {
  for (const int64_t width : {1, 3, 8, 33, 512, 1000, 2049}) {
    for (const float p : {0.1f, 0.5f, 0.9f}) {
      const auto context = cpu_context(2);
      const int64_t rows = 20000 / width + 1;
      const Dropout dropout{p, 0xfeedfacecafebeefull, 1234567, 89};
      Tensor x = filled(*context, {rows, width}, 1);
      set_requires_grad(x, true);
      const Tensor y = ops::bias_act_dropout(*context, x, {}, Activation::relu, dropout);
      context->backward(y, filled(*context, {rows, width}, 1));
      const float scale = static_cast<float>(dropout.scale());
      const Tensor gradient = grad_of(x);
      int64_t wrong = 0, kept = 0;
      for (int64_t i = 0; i < rows * width; ++i) {
        const bool keeps = dropout_keeps(dropout, i);
        const float expected = keeps ? scale : 0;
        wrong += y.data<float>()[i] != expected || gradient.data<float>()[i] != expected;
        kept += keeps;
      }
      EXPECT_EQ(wrong, 0) << "width " << width << ", p " << p;
      EXPECT_NEAR(static_cast<double>(kept) / static_cast<double>(rows * width), 1 - p, 0.02);
    }
  }
}

TEST(BiasActDropout, BiasGradientOfManyRows) {
  const auto context = cpu_context(2);
  const int64_t rows = 5000, width = 37;
  Tensor x = filled(*context, {rows, width}, 1), bias = filled(*context, {width}, 1);
  set_requires_grad(bias, true);
  const Tensor y = ops::bias_act_dropout(*context, x, bias, Activation::relu, {});
  context->backward(y, filled(*context, {rows, width}, 1));
  for (const float v : context->values<float>(grad_of(bias))) EXPECT_EQ(v, rows);
}

TEST(BiasActDropout, Errors) {
  const auto context = cpu_context();
  Context& c = *context;
  const Tensor x = filled(c, {2, 4}, 1);
  expect_error(ErrorCode::shape_mismatch, "bias must be [4]", [&] {
    ops::bias_act_dropout(c, x, filled(c, {1, 4}, 1), Activation::relu, {});
  });
  for (const float p : {-0.1f, 1.0f, NAN})
    expect_error(ErrorCode::invalid_argument, "", [&] {
      ops::bias_act_dropout(c, x, {}, Activation::relu, Dropout{p, 0, 0, 0});
    });
  expect_error(ErrorCode::dtype_mismatch, "bias is float64", [&] {
    ops::bias_act_dropout(c, x, c.zeros({4}, DType::f64), Activation::relu, {});
  });
}

}  // namespace
}  // namespace trafo::testing
