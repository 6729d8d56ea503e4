#include "engine/ops/binary/binary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/ops/op_kernel.h"
#include "tests/ops/op_cases.h"

namespace trafo::testing {
namespace {

// Long rows are cut into blocks; every pattern of steps has a separate path.
TEST(Binary, LargeBroadcastsAgreeWithTheDefinition) {
  const auto context = make_context({DeviceKind::cpu, 0}, 3);
  InputMaker maker(*context, DType::f32, 1);
  constexpr int64_t rows = 5, width = 40003;
  const Tensor x = maker.uniform({rows, width});
  for (const Shape& shape : {Shape{rows, width}, Shape{width}, Shape{rows, 1}, Shape{1}}) {
    const Tensor y = maker.uniform(shape);
    const Tensor difference = ops::subtract(*context, x, y),
                 reversed = ops::subtract(*context, y, x);
    int64_t wrong = 0;
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < width; ++j) {
        const int64_t row = shape.rank() == 2 ? i : 0;
        const int64_t column = shape.back() == 1 ? 0 : j;
        const float b = y.data<float>()[row * shape.back() + column];
        const float expected = x.data<float>()[i * width + j] - b;
        wrong += difference.data<float>()[i * width + j] != expected;
        wrong += reversed.data<float>()[i * width + j] != -expected;
      }
    EXPECT_EQ(wrong, 0) << shape.str();
  }
}

// Unlike a product with a mask, select() lets nothing through where the mask is 0.
TEST(Binary, SelectHidesInfinitiesAndNaN) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const float infinity = std::numeric_limits<float>::infinity();
  for (const int64_t width : {3, 37}) {
    std::vector<float> values(static_cast<size_t>(2 * width), 2), mask(values.size(), 1);
    values[0] = infinity;
    values[1] = std::nanf("");
    mask[0] = mask[1] = mask.back() = 0;
    Tensor x = context->from_values<float>(values, {2, width});
    set_requires_grad(x, true);
    const Tensor m = context->from_values<float>(mask, {2, width});
    const Tensor y = ops::select(*context, x, m);
    const Tensor upstream =
        context->from_values<float>(std::vector<float>(values.size(), std::nanf("")), {2, width});
    context->backward(y, upstream);
    for (size_t i = 0; i < mask.size(); ++i) {
      EXPECT_EQ(y.data<float>()[i], mask[i] == 0 ? 0 : 2) << i;
      const float gradient = grad_of(x).data<float>()[i];
      EXPECT_TRUE(mask[i] == 0 ? gradient == 0 : std::isnan(gradient)) << i;
    }
  }
  EXPECT_THROW(ops::select(*context, context->zeros({2}, DType::f32), {}), Error);
}

TEST(Binary, Errors) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const Tensor x = context->zeros({2, 3}, DType::f32);
  const auto expect = [&](ErrorCode code, const char* text, const Tensor& a, const Tensor& b) {
    try {
      ops::add(*context, a, b);
      ADD_FAILURE() << "no error: " << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_EQ(error.origin(), "add");
      EXPECT_NE(error.message().find(text), std::string::npos) << error.what();
    }
  };
  expect(ErrorCode::shape_mismatch, "[2, 3] and [2]", x, context->zeros({2}, DType::f32));
  expect(ErrorCode::dtype_mismatch, "cast one", x, context->zeros({3}, DType::f64));
  expect(ErrorCode::dtype_mismatch, "cast to float32 first", x, context->zeros({3}, DType::bf16));
  expect(ErrorCode::dtype_mismatch, "int32", context->zeros({3}, DType::i32), x);
  expect(ErrorCode::invalid_argument, "b is undefined", x, {});
}

}  // namespace
}  // namespace trafo::testing
