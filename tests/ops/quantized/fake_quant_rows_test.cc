#include "engine/ops/fake_quant_rows/fake_quant_rows.h"

#include <cmath>
#include <limits>

#include "engine/backend/cpu/cpu_backend.h"
#include "engine/ops/binary/binary.h"
#include "engine/ops/view/view.h"
#include "engine/quant/int4_matrix.h"
#include "engine/quant/int8_kernel.h"
#include "tests/ops/row_test.h"

namespace trafo::testing {
namespace {

// Rows of different sizes, among them one of zeros and one that counts as zeros.
std::vector<float> uneven_rows(int64_t rows, int64_t width) {
  PhiloxStream random(17, static_cast<uint64_t>(width));
  std::vector<float> values(static_cast<size_t>(rows * width));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto row = static_cast<int>(i / static_cast<size_t>(width));
    const double size = row == 1 ? 0 : row == 2 ? 1e-33 : std::ldexp(1.0, row);
    values[i] = static_cast<float>(random.uniform(-size, size));
  }
  return values;
}

constexpr int64_t kWidths[] = {1, 2, 7, 16, 31, 33, 64, 100, 515};

Tensor rounded(Context& context, const Tensor& x, int64_t bits, DType dtype = DType::f32) {
  Tensor y = context.empty(x.shape(), dtype);
  fake_quant_into(context, y, x, bits);
  return y;
}

// Quantization-aware training uses the values of a quantized model, to the last bit.
TEST(FakeQuantRows, EightBitsAreThoseOfTheInt8Kernels) {
  const auto context = cpu_context();
  for (const int64_t width : kWidths) {
    const auto x = uneven_rows(5, width);
    const auto y =
        context->values<float>(rounded(*context, context->from_values<float>(x, {5, width}), 8));
    const auto matrix =
        Int8Matrix::quantized(*cpu_thread_pool(context->backend()), x.data(), 5, width);
    std::vector<float> expected(y.size());
    for (int64_t r = 0; r < 5; ++r)
      best_int8_kernel().dequantize(matrix.row(r), width, matrix.scales()[static_cast<size_t>(r)],
                                    nullptr, expected.data() + r * width);
    EXPECT_EQ(y, expected) << width;
  }
}

TEST(FakeQuantRows, FourBitsAreThoseOfInt4Matrices) {
  const auto context = cpu_context();
  for (const int64_t width : kWidths) {
    const auto x = uneven_rows(5, width);
    const auto y =
        context->values<float>(rounded(*context, context->from_values<float>(x, {5, width}), 4));
    ThreadPool& pool = *cpu_thread_pool(context->backend());
    EXPECT_EQ(y, Int4Matrix::quantized(pool, x, 5, width).values(pool)) << width;
  }
}

// Half a step is the largest error. The scale of 4 bits has a separate error, of 2^-11; a step
// of 8 bits is up to 1/128 wider than the largest magnitude asks for.
TEST(FakeQuantRows, ErrorsAreWithinHalfAStep) {
  const auto context = cpu_context();
  InputMaker make(*context, DType::f64, 5);
  const Tensor x = make.uniform({6, 70}, -3, 3);
  for (const auto& [bits, step] : {std::pair{8, 3.0 / 127 * 129 / 128}, std::pair{4, 3.0 / 7}}) {
    const auto exact = doubles(x), close = doubles(rounded(*context, x, bits, DType::f64));
    for (size_t i = 0; i < exact.size(); ++i)
      EXPECT_LE(std::abs(exact[i] - close[i]), step * (0.5 + 7.0 / 2048)) << bits;
  }
}

TEST(FakeQuantRows, TheGradientPassesUnchanged) {
  const auto context = cpu_context();
  for (const DType dtype : {DType::f32, DType::f64}) {
    InputMaker make(*context, dtype, 6);
    Tensor x = make.uniform({4, 35}, -2, 2);
    const Tensor upstream = make.uniform({4, 35});
    set_requires_grad(x, true);
    const Tensor y = ops::fake_quant_rows(*context, x);
    EXPECT_NE(doubles(y), doubles(x));
    context->backward(y, upstream);
    EXPECT_EQ(doubles(grad_of(x)), doubles(upstream));
  }
}

// Two uses of one tensor: both gradients arrive, and the input may be overwritten before backward.
TEST(FakeQuantRows, NothingOfTheInputIsNeededInBackward) {
  const auto context = cpu_context();
  InputMaker make(*context, DType::f64, 7);
  Tensor x = make.uniform({3, 20});
  const Tensor first = make.uniform({3, 20}), second = make.uniform({3, 20});
  set_requires_grad(x, true);
  const Tensor a = ops::fake_quant_rows(*context, x), b = ops::fake_quant_rows(*context, x);
  const Tensor both =
      ops::add(*context, ops::multiply(*context, a, first), ops::multiply(*context, b, second));
  const std::vector<double> ones(60, 1.0);
  context->backward(both, context->from_values<double>(ones, {3, 20}));
  const auto f = doubles(first), s = doubles(second), grad = doubles(grad_of(x));
  for (size_t i = 0; i < grad.size(); ++i) EXPECT_DOUBLE_EQ(grad[i], f[i] + s[i]);
}

TEST(FakeQuantRows, ThreadsAndStridesChangeNoBit) {
  const auto context = cpu_context(), three = cpu_context(3);
  const auto values = uneven_rows(70, 45);
  const Tensor x = context->from_values<float>(values, {70, 45});
  const auto expected = context->values<float>(ops::fake_quant_rows(*context, x));
  const Tensor other = three->from_values<float>(values, {70, 45});
  EXPECT_EQ(three->values<float>(ops::fake_quant_rows(*three, other)), expected);
  const Tensor turned = ops::contiguous(*context, ops::transpose(*context, x, 0, 1));
  EXPECT_EQ(context->values<float>(
                ops::fake_quant_rows(*context, ops::transpose(*context, turned, 0, 1))),
            expected);
}

TEST(FakeQuantRows, ARowThatIsNotFiniteIsNaNAndTheOthersStay) {
  const auto context = cpu_context();
  for (const int bits : {8, 4})
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
      auto values = uneven_rows(5, 40);
      const auto good = context->values<float>(
          rounded(*context, context->from_values<float>(values, {5, 40}), bits));
      values[3 * 40 + 38] = bad;
      const auto y = context->values<float>(
          rounded(*context, context->from_values<float>(values, {5, 40}), bits));
      const size_t first = 3 * 40 + (bits == 4 ? 32 : 0);
      for (size_t i = 0; i < y.size(); ++i) {
        if (i >= first && i < 4 * 40)
          EXPECT_TRUE(std::isnan(y[i])) << i;
        else
          EXPECT_EQ(y[i], good[i]) << i;
      }
    }
}

// Weights are rounded where they lie, and nothing beside them is written.
TEST(FakeQuantRows, MatricesOfAWorkspaceAreRoundedEachAndTheRestStays) {
  const auto context = cpu_context(), three = cpu_context(3);
  const std::vector<MatrixPlace> places{{16, 5, 33}, {192, 1, 7}, {208, 40, 64}, {2800, 3, 1}};
  constexpr int64_t kElements = 2816;
  InputMaker make(*context, DType::f32, 8);
  const Tensor x = make.uniform({kElements}, -3, 3);
  const auto values = context->values<float>(x);
  for (const int64_t bits : {8, 4}) {
    auto expected = std::vector<float>(kElements, 2.5f);
    for (const auto& [offset, rows, width] : places) {
      const auto first = static_cast<size_t>(offset), count = static_cast<size_t>(rows * width);
      const Tensor matrix =
          context->from_values<float>(std::span(values).subspan(first, count), {rows, width});
      const auto y = context->values<float>(rounded(*context, matrix, bits));
      std::copy(y.begin(), y.end(), expected.begin() + offset);
    }
    for (Context* on : {context.get(), three.get()}) {
      const Tensor y = filled(*on, {kElements}, 2.5);
      fake_quant_into(*on, y, on->from_values<float>(values, {kElements}), places, bits);
      EXPECT_EQ(on->values<float>(y), expected) << bits;
    }
  }
}

TEST(FakeQuantRows, BadInputIsNamed) {
  const auto context = cpu_context();
  expect_error(ErrorCode::shape_mismatch, "last dimension",
               [&] { ops::fake_quant_rows(*context, filled(*context, {}, 1)); });
  const Tensor x = filled(*context, {2, 5}, 1);
  expect_error(ErrorCode::invalid_argument, "8 or 4 bits, not 5",
               [&] { fake_quant_into(*context, x, x, 5); });
  expect_error(ErrorCode::shape_mismatch, "one shape", [&] {
    fake_quant_into(*context, filled(*context, {2, 4}, 1), x, 8);
  });
  for (const MatrixPlace& place :
       {MatrixPlace{0, 3, 4}, MatrixPlace{6, 1, 5}, MatrixPlace{11, 0, 1}, MatrixPlace{-1, 1, 1},
        MatrixPlace{0, 1, 0}})
    expect_error(ErrorCode::shape_mismatch, "is not within 10 elements",
                 [&] { fake_quant_into(*context, x, x, std::span(&place, 1), 8); });
}

}  // namespace
}  // namespace trafo::testing
