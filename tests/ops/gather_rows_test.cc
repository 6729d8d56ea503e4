#include "engine/ops/gather_rows/gather_rows.h"

#include <gtest/gtest.h>

#include <numeric>

#include "engine/ops/op_kernel.h"
#include "engine/ops/view/view.h"
#include "tests/support/errors.h"

namespace trafo {
namespace {

std::vector<int32_t> counting(int64_t count) {
  std::vector<int32_t> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 0);
  return values;
}

TEST(GatherRows, RowsOfEveryWidthAndThreadCount) {
  const std::vector<int32_t> index = {4, 0, 4, 2, 3, 1, 0};
  for (const int threads : {1, 3}) {
    auto context = make_context(Device{}, threads);
    const Tensor numbers = context->from_values<int32_t>(index, {7});
    // 1 << 16 columns are 256 KiB a row, which is cut into pieces; one more leaves a short piece.
    for (const int64_t width : {1, 3, 17, 4096, 1 << 16, (1 << 16) + 1}) {
      const std::vector<int32_t> values = counting(5 * width);
      const Tensor x = context->from_values<int32_t>(values, {5, width});
      const auto out = context->values<int32_t>(ops::gather_rows(*context, x, numbers));
      std::vector<int32_t> expected;
      for (const int32_t row : index)
        expected.insert(expected.end(), values.begin() + row * width,
                        values.begin() + (row + 1) * width);
      EXPECT_EQ(out, expected) << "width " << width << ", " << threads << " threads";
    }
  }
}

TEST(GatherRows, AnyDtypeAndRank) {
  auto context = make_context(Device{}, 1);
  const Tensor index = context->from_values<int32_t>(std::vector<int32_t>{1, 1, 0}, {3});
  const Tensor f64 =
      context->from_values<double>(std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8}, {2, 2, 2});
  const Tensor picked = ops::gather_rows(*context, f64, index);
  EXPECT_EQ(picked.shape(), (Shape{3, 2, 2}));
  EXPECT_EQ(context->values<double>(picked),
            (std::vector<double>{5, 6, 7, 8, 5, 6, 7, 8, 1, 2, 3, 4}));

  const std::vector<BFloat16> narrow = {BFloat16::from_float(0.5f), BFloat16::from_float(-2)};
  const auto halves = context->values<BFloat16>(
      ops::gather_rows(*context, context->from_values<BFloat16>(narrow, {2}), index));
  EXPECT_EQ(halves[0].to_float(), -2);
  EXPECT_EQ(halves[2].to_float(), 0.5f);
}

TEST(GatherRows, EmptyAndStrided) {
  auto context = make_context(Device{}, 2);
  const Tensor x = context->from_values<int32_t>(counting(6), {2, 3});
  const Tensor nothing = context->empty({0}, DType::i32);
  EXPECT_EQ(ops::gather_rows(*context, x, nothing).shape(), (Shape{0, 3}));
  const Tensor index = context->from_values<int32_t>(std::vector<int32_t>{2, 0}, {2});
  EXPECT_EQ(ops::gather_rows(*context, context->empty({3, 0}, DType::f32), index).numel(), 0);
  const Tensor columns = ops::transpose(*context, x, 0, 1);  // [3, 2]
  EXPECT_EQ(context->values<int32_t>(ops::gather_rows(*context, columns, index)),
            (std::vector<int32_t>{2, 5, 0, 3}));
}

TEST(GatherRows, RefusesWhatItCannotDo) {
  auto context = make_context(Device{}, 1);
  Tensor x = context->zeros({2, 3}, DType::f32);
  const auto gather = [&](std::vector<int32_t> index) {
    const Shape shape{static_cast<int64_t>(index.size())};
    ops::gather_rows(*context, x, context->from_values<int32_t>(index, shape));
  };
  EXPECT_EQ(code_of([&] { gather({0, 2}); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { gather({-1}); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { ops::gather_rows(*context, x, x); }), ErrorCode::shape_mismatch);
  EXPECT_EQ(code_of([&] { ops::gather_rows(*context, x, context->zeros({2}, DType::f32)); }),
            ErrorCode::dtype_mismatch);
  set_requires_grad(x, true);
  EXPECT_EQ(code_of([&] { gather({0}); }), ErrorCode::unsupported);
  const NoGrad no_grad(*context);
  EXPECT_EQ(code_of([&] { gather({0}); }), ErrorCode::ok);
}

}  // namespace
}  // namespace trafo
