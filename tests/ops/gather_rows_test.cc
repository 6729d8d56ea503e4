#include "engine/ops/gather_rows/gather_rows.h"

#include <gtest/gtest.h>

#include <numeric>

#include "engine/ops/op_kernel.h"
#include "engine/ops/view/view.h"
#include "tests/ops/cuda/cuda_test.h"
#include "tests/ops/op_cases.h"
#include "tests/support/errors.h"

namespace trafo {
namespace {

class CopyRowsCuda : public testing::CudaTest {};

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

// Planes 7 rows of 5 apart, of which `width` elements are copied.
TEST(CopyRows, RowsOfEveryPlaneGoWhereTheyShould) {
  for (const int threads : {1, 3}) {
    auto context = make_context(Device{}, threads);
    for (const int64_t width : {1, 3, 17, (1 << 16) + 1}) {
      const std::vector<int32_t> values = counting(3 * 7 * (width + 2));
      const auto rows_of = [&](const Tensor& x) {
        return x.as_strided({3, 7, width}, {7 * (width + 2), width + 2, 1}, x.offset() + 1);
      };
      const Shape shape{3 * 7 * (width + 2)};
      const Tensor x = context->from_values<int32_t>(values, shape);
      const Tensor out = context->zeros(shape, DType::i32);
      const Tensor from = context->from_values<int32_t>(std::vector<int32_t>{4, 0, 4}, {3});
      const Tensor to = context->from_values<int32_t>(std::vector<int32_t>{6, 5, 1}, {3});
      ops::copy_rows(*context, rows_of(x), from, rows_of(out), to);
      ops::copy_rows(*context, rows_of(x), from, rows_of(x), to);  // the same within a tensor
      std::vector<int32_t> copied(values.size()), expected = values;
      for (int64_t plane = 0; plane < 3; ++plane)
        for (const auto& [a, b] : {std::pair{4, 6}, {0, 5}, {4, 1}})
          for (int64_t c = 1; c <= width; ++c) {
            const auto at = [&](int64_t row) {
              return static_cast<size_t>((plane * 7 + row) * (width + 2) + c);
            };
            copied[at(b)] = expected[at(b)] = values[at(a)];
          }
      EXPECT_EQ(context->values<int32_t>(out), copied) << "width " << width;
      EXPECT_EQ(context->values<int32_t>(x), expected) << "width " << width;
    }
  }
}

// All widths of words that the kernel moves. A row that is out of `out` is not written.
TEST_F(CopyRowsCuda, CopiesWhatTheCpuCopies) {
  const auto cpu = make_context(Device{}, 1);
  for (const int64_t width : {4, 6, 7, 4096, 5001})
    for (const DType dtype : {DType::i32, DType::bf16}) {
      const Shape shape{3, 7, width};
      const auto copied = [&](Context& context, bool wrong) {
        testing::InputMaker make(*cpu, DType::f32, 3);
        const auto values = cpu->values<float>(make.uniform(shape));
        std::vector<int32_t> numbers;
        std::vector<BFloat16> halves;
        for (const float value : values) {
          numbers.push_back(static_cast<int32_t>(1000 * value));
          halves.push_back(BFloat16::from_float(value));
        }
        const Tensor x = dtype == DType::i32 ? context.from_values<int32_t>(numbers, shape)
                                             : context.from_values<BFloat16>(halves, shape);
        std::vector<int32_t> from = {4, 0, 4}, to = {6, 5, 1};
        if (wrong) {
          from.insert(from.end(), {2, 2});
          to.insert(to.end(), {7, -1});
        }
        const Shape count{static_cast<int64_t>(from.size())};
        ops::copy_rows(context, x, context.from_values<int32_t>(from, count), x,
                       context.from_values<int32_t>(to, count));
        std::vector<std::byte> bytes(x.bytes());
        context.backend().copy_to_host(bytes.data(), x.raw(), bytes.size());
        return bytes;
      };
      EXPECT_EQ(copied(*context_, false), copied(*cpu, false)) << width;
      EXPECT_EQ(copied(*context_, true), copied(*cpu, false)) << width;
    }
}

TEST(CopyRows, RefusesWhatItCannotDo) {
  auto context = make_context(Device{}, 1);
  const Tensor x = context->zeros({2, 3, 4}, DType::f32);
  const auto copy = [&](const Tensor& out, std::vector<int32_t> from, std::vector<int32_t> to) {
    const Shape rows{static_cast<int64_t>(from.size())}, others{static_cast<int64_t>(to.size())};
    ops::copy_rows(*context, x, context->from_values<int32_t>(from, rows), out,
                   context->from_values<int32_t>(to, others));
  };
  const Tensor out = context->zeros({2, 5, 4}, DType::f32);
  copy(out, {2}, {4});
  EXPECT_EQ(code_of([&] { copy(out, {3}, {4}); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { copy(out, {2}, {5}); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { copy(out, {2}, {-1}); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { copy(out, {2, 1}, {4}); }), ErrorCode::shape_mismatch);
  for (const Shape& other : {Shape{3, 5, 4}, Shape{2, 5, 3}, Shape{10, 4}})
    EXPECT_EQ(code_of([&] { copy(context->zeros(other, DType::f32), {2}, {4}); }),
              ErrorCode::shape_mismatch);
  EXPECT_EQ(code_of([&] {
              copy(context->zeros({2, 5, 4}, DType::i32), {2}, {4});
            }),
            ErrorCode::shape_mismatch);
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
