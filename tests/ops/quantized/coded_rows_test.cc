// Products of few rows that read the codes of a frozen weight: on the CPU, on a device that has the
// kernels of the CPU, and on a GPU with TRAFO_TEST_DEVICE=cuda.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/ops/low_rank_linear/low_rank_linear.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/op_kernel.h"
#include "tests/ops/cuda/cuda_test.h"
#include "tests/ops/quantized/coded_matrices.h"
#include "tests/ops/term_device.h"
#include "tests/support/errors.h"

namespace trafo::testing {
namespace {

constexpr int64_t kTokenCounts[] = {1, 2, 7, 8, 9, 16, 17};

struct CodedSizes {
  int64_t in, out;
};
// Odd numbers of rows; widths with and without a kernel; with a part of a slab, and with several
// slabs a warp; blocks of 16 and of 32 rows on a card of 132 multiprocessors.
constexpr CodedSizes kCodedSizes[] = {{64, 1},     {64, 33},   {128, 16},   {192, 7},    {100, 20},
                                      {1984, 131}, {8192, 48}, {320, 4300}, {2048, 4480}};

Tensor make_tensor(Context& context, const Shape& shape, DType dtype, uint64_t seed) {
  return context.from_doubles(exact_uniform(element_count(shape), seed), shape, dtype);
}

// y = x W^T + bias in float64, and how far sums of `dtype` may be from it. `w`: values as they are
// multiplied.
struct ExactProduct {
  std::vector<double> y, bound;
};

ExactProduct exact_product(const std::vector<double>& x, const std::vector<double>& w,
                           const std::vector<double>& bias, int64_t tokens, const CodedSizes& sizes,
                           DType dtype) {
  const double sum_error = dtype == DType::f64 ? std::ldexp(1.0, -53) : std::ldexp(1.0, -24);
  const double rounding = dtype == DType::bf16 ? std::ldexp(1.0, -8) : sum_error;
  ExactProduct product;
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t r = 0; r < sizes.out; ++r) {
      double sum = bias.empty() ? 0 : bias[static_cast<size_t>(r)], magnitude = std::abs(sum);
      for (int64_t c = 0; c < sizes.in; ++c) {
        const double term =
            x[static_cast<size_t>(t * sizes.in + c)] * w[static_cast<size_t>(r * sizes.in + c)];
        sum += term;
        magnitude += std::abs(term);
      }
      const double of_sum = static_cast<double>(sizes.in + 2) * sum_error * magnitude;
      product.y.push_back(sum);
      product.bound.push_back(of_sum + rounding * (std::abs(sum) + of_sum));
    }
  return product;
}

void expect_within(const std::vector<double>& y, const ExactProduct& expected) {
  ASSERT_EQ(y.size(), expected.y.size());
  for (size_t i = 0; i < y.size(); ++i)
    ASSERT_LE(std::abs(y[i] - expected.y[i]), expected.bound[i]) << i << ": " << y[i];
}

// Of every precision, number of tokens and size: quantized_linear beside the exact product.
void expect_exact_products(Context& context, DType dtype, int64_t most_rows) {
  for (const BasePrecision precision : kCodedFormats)
    for (const CodedSizes& sizes : kCodedSizes) {
      if (sizes.out > most_rows) continue;
      const CodedMatrix matrix = coded_matrix(context, precision, sizes.out, sizes.in);
      const std::vector<double> w = as_doubles(context, ops::dequantized(context, matrix, dtype));
      const Tensor bias = make_tensor(context, {sizes.out}, dtype, 5);
      for (const int64_t tokens : kTokenCounts)
        for (const bool has_bias : {true, false}) {
          if (sizes.out > 1000 && tokens > 1 && tokens < 16) continue;
          SCOPED_TRACE(concat(enum_name(precision), " ", tokens, " ", sizes.in, " ", sizes.out));
          const Tensor x = make_tensor(context, {tokens, sizes.in}, dtype, 4);
          const Tensor y = ops::quantized_linear(context, x, matrix, has_bias ? bias : Tensor{});
          // Other products are a GEMM of the values. Of bfloat16, it is a library's, which may
          // round before it adds the bias.
          if (dtype == DType::bf16 &&
              !takes_coded_rows(context.device().kind, dtype, tokens, sizes.in)) {
            const Tensor values = ops::dequantized(context, matrix, dtype);
            ASSERT_EQ(
                as_doubles(context, y),
                as_doubles(context, ops::linear(context, x, values, has_bias ? bias : Tensor{})));
            continue;
          }
          expect_within(as_doubles(context, y),
                        exact_product(as_doubles(context, x), w,
                                      has_bias ? as_doubles(context, bias) : std::vector<double>{},
                                      tokens, sizes, dtype));
        }
    }
}

// Rows that are unit vectors give the values of the weight, bit by bit.
void expect_values(Context& context, DType dtype, const CodedSizes& sizes) {
  for (const BasePrecision precision : kCodedFormats) {
    SCOPED_TRACE(concat(enum_name(precision), " ", sizes.in, " ", sizes.out));
    const CodedMatrix matrix = coded_matrix(context, precision, sizes.out, sizes.in);
    const std::vector<double> w = as_doubles(context, ops::dequantized(context, matrix, dtype));
    for (int64_t first = 0; first < sizes.in; first += kMostCodedRows) {
      std::vector<double> units(static_cast<size_t>(kMostCodedRows * sizes.in));
      for (int64_t t = 0; t < kMostCodedRows; ++t)
        units[static_cast<size_t>(t * sizes.in + first + t)] = 1;
      const Tensor x = context.from_doubles(units, {kMostCodedRows, sizes.in}, dtype);
      const std::vector<double> y = as_doubles(context, ops::quantized_linear(context, x, matrix));
      for (int64_t t = 0; t < kMostCodedRows; ++t)
        for (int64_t r = 0; r < sizes.out; ++r)
          ASSERT_EQ(y[static_cast<size_t>(t * sizes.out + r)],
                    w[static_cast<size_t>(r * sizes.in + first + t)])
              << "row " << r << ", column " << first + t;
    }
  }
}

constexpr std::pair<int64_t, int64_t> kTokensAndRanks[] = {{1, 4},  {2, 16}, {7, 8},   {8, 4},
                                                           {9, 16}, {16, 5}, {16, 32}, {17, 16}};

// A layer with an adapter over codes, beside the same one over values.
void expect_adapter(Context& context, DType dtype, double bound) {
  const auto ranges =
      std::make_shared<const std::vector<ColumnRange>>(std::vector<ColumnRange>{{0, 40}, {60, 20}});
  for (const BasePrecision precision : kCodedFormats)
    for (const auto& [tokens, rank] : kTokensAndRanks) {
      SCOPED_TRACE(concat(enum_name(precision), " ", tokens, " ", rank));
      const auto coded =
          std::make_shared<const CodedMatrix>(coded_matrix(context, precision, 80, 128));
      const Tensor values = ops::dequantized(context, *coded, dtype);
      const Tensor x = make_tensor(context, {tokens, 128}, dtype, 1),
                   bias = make_tensor(context, {80}, dtype, 2);
      LowRankUpdate update{make_tensor(context, {2 * rank, 128}, dtype, 3),
                           make_tensor(context, {60, rank}, dtype, 4), 0.125, ranges};
      const auto layer = [&](const FrozenMatrix& weight) {
        return as_doubles(context, ops::low_rank_linear(context, x, weight, bias, update).detach());
      };
      const std::vector<double> y = layer({Tensor{}, coded});
      expect_all_near(y, layer({values, nullptr}), bound);
      // With gradients: the same bits.
      set_requires_grad(update.up, true);
      EXPECT_EQ(layer({Tensor{}, coded}), y);
    }
}

// A layer with an adapter over codes and over values, in as many ranges as the kernel takes and in
// more: y and the gradients of x, A and B.
void expect_adapter_gradients(Context& context, DType dtype) {
  using Ranges = std::vector<ColumnRange>;
  for (const Ranges& ranges :
       {Ranges{{0, 40}, {60, 20}}, Ranges{{0, 10}, {12, 8}, {20, 20}, {60, 10}, {70, 10}}})
    for (const BasePrecision precision : kCodedFormats) {
      SCOPED_TRACE(concat(enum_name(precision), " ", ranges.size()));
      const auto coded =
          std::make_shared<const CodedMatrix>(coded_matrix(context, precision, 80, 128));
      int64_t rows = 0;
      for (const ColumnRange& range : ranges) rows += range.count;
      const auto run = [&](const FrozenMatrix& weight) {
        Tensor x = make_tensor(context, {3, 128}, dtype, 1),
               down = make_tensor(context, {8 * std::ssize(ranges), 128}, dtype, 3),
               up = make_tensor(context, {rows, 8}, dtype, 4);
        for (Tensor* const tensor : {&x, &down, &up}) set_requires_grad(*tensor, true);
        const Tensor y = ops::low_rank_linear(
            context, x, weight, {}, {down, up, 0.375, std::make_shared<const Ranges>(ranges)});
        context.backward(y, make_tensor(context, {3, 80}, dtype, 9));
        std::vector<std::vector<double>> found{as_doubles(context, y.detach())};
        for (const Tensor* const tensor : {&x, &down, &up})
          found.push_back(as_doubles(context, grad_of(*tensor)));
        return found;
      };
      const auto of_codes = run({Tensor{}, coded}),
                 of_values = run({ops::dequantized(context, *coded, dtype), nullptr});
      for (size_t i = 0; i < of_codes.size(); ++i) {
        SCOPED_TRACE(i);
        expect_all_near(of_codes[i], of_values[i], 1e-4);
      }
    }
}

// Whatever is computed beside it, a row has the same bits.
void expect_rows_by_themselves(Context& context, DType dtype) {
  for (const BasePrecision precision : kCodedFormats)
    for (const CodedSizes& sizes : {CodedSizes{1984, 131}, CodedSizes{320, 4300}}) {
      SCOPED_TRACE(concat(enum_name(precision), " ", sizes.in, " ", sizes.out));
      const CodedMatrix matrix = coded_matrix(context, precision, sizes.out, sizes.in);
      const std::vector<double> all = exact_uniform(kMostCodedRows * sizes.in, 6);
      const auto rows = [&](int64_t first, int64_t count) {
        const auto begin = all.begin() + first * sizes.in;
        const Tensor x =
            context.from_doubles({begin, begin + count * sizes.in}, {count, sizes.in}, dtype);
        return as_doubles(context, ops::quantized_linear(context, x, matrix));
      };
      const std::vector<double> together = rows(0, kMostCodedRows);
      for (const int64_t count : {1, 8})
        for (int64_t first = 0; first < kMostCodedRows; first += count)
          ASSERT_TRUE(std::ranges::equal(
              rows(first, count),
              std::span(together).subspan(static_cast<size_t>(first * sizes.out),
                                          static_cast<size_t>(count * sizes.out))))
              << first;
    }
}

static_assert(takes_coded_rows(DeviceKind::cuda, DType::bf16, 16, 64));
static_assert(!takes_coded_rows(DeviceKind::cuda, DType::bf16, 17, 64));
static_assert(!takes_coded_rows(DeviceKind::cuda, DType::bf16, 0, 64));
static_assert(!takes_coded_rows(DeviceKind::cuda, DType::f32, 1, 96));
static_assert(!takes_coded_rows(DeviceKind::cuda, DType::f64, 1, 64));
static_assert(!takes_coded_rows(DeviceKind::cpu, DType::f32, 1, 64));

// A device with the kernels of the CPU, on which few rows take the codes.
TEST(CodedRows, ADeviceHasTheDefinition) {
  const auto device = std::make_shared<Accelerator>();
  Context context{device};
  int launches = 0;
  device->on_launch = [&](OpKernel kernel, const void*) {
    launches += kernel == OpKernel::coded_rows ? 1 : 0;
  };
  expect_exact_products(context, DType::f32, 1000);
  // 3 formats, 6 sizes that have the kernel, 6 numbers of tokens, with and without a bias.
  EXPECT_EQ(launches, 3 * 6 * 6 * 2);
  expect_values(context, DType::f32, {192, 7});
  expect_adapter(context, DType::f32, 1e-4);
  expect_rows_by_themselves(context, DType::f32);
}

TEST(CodedRows, ATermIsAddedToThem) {
  const auto device = std::make_shared<TermDevice>(DeviceKind::cuda);
  Context context{device};
  expect_adapter(context, DType::f32, 1e-4);
  // Of the layer over values, every time, and of those over codes with 17 rows.
  EXPECT_EQ(device->terms, 3 * (static_cast<int>(std::size(kTokensAndRanks)) + 2));
  expect_adapter_gradients(context, DType::f32);
}

TEST(CodedRows, TheCpuHasNoHalves) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const CodedMatrix matrix = coded_matrix(*context, BasePrecision::int8, 2, 64);
  const Tensor x = make_tensor(*context, {1, 64}, DType::bf16, 1);
  expect_error(ErrorCode::dtype_mismatch, "the CPU has no rows of bfloat16", [&] {
    launch(*context, OpKernel::coded_rows, "test",
           CodedRowsParams{matrix.precision, DType::bf16, 1, 2, 64, x.raw(), matrix.bytes.raw(),
                           nullptr, x.raw()});
  });
}

class CodedRowsOnAGpu : public CudaTest {};

TEST_F(CodedRowsOnAGpu, AreExactProducts) {
  expect_exact_products(*context_, DType::bf16, 5000);
  expect_exact_products(*context_, DType::f32, 1000);
}

TEST_F(CodedRowsOnAGpu, MultiplyTheValuesOfDequantize) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    expect_values(*context_, dtype, {192, 71});
    expect_values(*context_, dtype, {64, 4300});
  }
  expect_values(*context_, DType::bf16, {2112, 33});
}

TEST_F(CodedRowsOnAGpu, DoNotDependOnOtherRows) {
  expect_rows_by_themselves(*context_, DType::bf16);
  expect_rows_by_themselves(*context_, DType::f32);
}

TEST_F(CodedRowsOnAGpu, HaveAdapters) {
  expect_adapter(*context_, DType::bf16, 2e-2);
  expect_adapter(*context_, DType::f32, 1e-4);
  expect_adapter_gradients(*context_, DType::f32);
}

// A kernel starts before the one in front of it has ended, and waits before it reads x.
TEST_F(CodedRowsOnAGpu, FollowEachOther) {
  for (const BasePrecision precision : kCodedFormats) {
    SCOPED_TRACE(enum_name(precision));
    const CodedMatrix matrix = coded_matrix(*context_, precision, 1024, 1024);
    const Tensor x = make_tensor(*context_, {4, 1024}, DType::bf16, 3);
    const auto chain = [&](bool waits) {
      Tensor y = x;
      for (int i = 0; i < 20; ++i) {
        y = ops::quantized_linear(*context_, y, matrix);
        if (waits) context_->backend().synchronize();
      }
      return as_doubles(*context_, y);
    };
    const std::vector<double> one_by_one = chain(true);
    for (int i = 0; i < 10; ++i) ASSERT_EQ(chain(false), one_by_one);
  }
}

TEST_F(CodedRowsOnAGpu, NeedNoCopyOfTheValues) {
  const CodedMatrix matrix = coded_matrix(*context_, BasePrecision::nf4, 2048, 1024);
  const Tensor x = make_tensor(*context_, {16, 1024}, DType::bf16, 1);
  context_->backend().reset_peak_memory();
  const int64_t before = context_->backend().memory_stats().allocated_bytes;
  ops::quantized_linear(*context_, x, matrix);
  EXPECT_LT(context_->backend().memory_stats().peak_bytes - before, 1024 * 1024);
}

TEST_F(CodedRowsOnAGpu, TakeRowsThatBeginAnywhere) {
  constexpr CodedSizes kSizes{192, 37};
  for (const DType dtype : {DType::bf16, DType::f32})
    for (const BasePrecision precision : kCodedFormats) {
      const CodedMatrix matrix = coded_matrix(*context_, precision, kSizes.out, kSizes.in);
      const std::vector<double> w =
          as_doubles(*context_, ops::dequantized(*context_, matrix, dtype));
      for (const int64_t tokens : {1, 5}) {
        SCOPED_TRACE(concat(enum_name(precision), " ", dtype_name(dtype), " ", tokens));
        const Tensor all = make_tensor(*context_, {tokens * kSizes.in + 1}, dtype, 3),
                     y = context_->empty({tokens, kSizes.out}, dtype);
        launch(*context_, OpKernel::coded_rows, "test",
               CodedRowsParams{precision, dtype, tokens, kSizes.out, kSizes.in,
                               static_cast<std::byte*>(all.raw()) + dtype_size(dtype),
                               matrix.bytes.raw(), nullptr, y.raw()});
        std::vector<double> x = as_doubles(*context_, all);
        x.erase(x.begin());
        expect_within(as_doubles(*context_, y), exact_product(x, w, {}, tokens, kSizes, dtype));
      }
    }
}

}  // namespace
}  // namespace trafo::testing
