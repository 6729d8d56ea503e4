// int4 products: every kernel of this machine against loops that say what is computed, bit for bit.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "engine/core/numeric/half.h"
#include "engine/quant/int8_kernel.h"
#include "tests/support/errors.h"

namespace trafo {
namespace {

using Values = std::vector<float>;

Values normal_floats(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Values values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

// The formula of int8_kernel.h, with the values of the matrix's file.
Values naive_int4(const Values& x, const Int4Matrix& w, const float* bias) {
  const int64_t k = w.columns(), m = std::ssize(x) / k;
  Values y;
  for (int64_t i = 0; i < m; ++i) {
    std::vector<uint8_t> codes(static_cast<size_t>(k));
    const float x_scale = int8_kernels().back()->quantize(x.data() + i * k, k, 0, codes.data());
    for (int64_t r = 0; r < w.rows(); ++r) {
      float total = 0;
      for (int64_t g = 0; g < w.groups(); ++g) {
        int32_t sum = 0;
        for (int64_t c = g * 32; c < std::min(k, g * 32 + 32); ++c) {
          const uint8_t both = w.codes()[static_cast<size_t>(r * w.row_bytes() + c / 2)];
          sum += static_cast<int8_t>(codes[static_cast<size_t>(c)]) *
                 ((c % 2 == 0 ? both & 15 : both >> 4) - 8);
        }
        const uint16_t scale = w.scales()[static_cast<size_t>(r * w.groups() + g)];
        total = std::fma(static_cast<float>(sum), half_to_float(scale), total);
      }
      y.push_back(std::fma(total, x_scale, bias ? bias[r] : 0.0f));
    }
  }
  return y;
}

void expect_equal_bits(const Values& actual, const Values& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i)
    ASSERT_EQ(std::bit_cast<uint32_t>(actual[i]), std::bit_cast<uint32_t>(expected[i]))
        << "element " << i << ": " << actual[i] << " and " << expected[i];
}

Values int4_linear(ThreadPool& pool, const Int8Kernel& kernel, const Int4Panels& w, const Values& x,
                   const float* bias) {
  const int64_t m = std::ssize(x) / w.columns();
  Values y(static_cast<size_t>(m * w.rows()), -1.0f);
  int4_gemm(pool, kernel, w, x.data(), m, w.columns(), bias, y.data(), w.rows());
  return y;
}

TEST(Int4Kernels, ComputeTheFormula) {
  ThreadPool pool(1);
  for (const int64_t k : {1, 2, 31, 32, 33, 64, 100})
    for (const int64_t n : {1, 4, 15, 16, 17, 70})
      for (const int64_t m : {1, 2, 3, 7, 8, 17}) {
        const auto seed = static_cast<unsigned>(k * 10007 + n * 101 + m);
        const Values x = normal_floats(m * k, seed), bias = normal_floats(n, seed + 2);
        const auto matrix = Int4Matrix::quantized(pool, normal_floats(n * k, seed + 1), n, k);
        const Int4Panels panels(pool, matrix);
        const Values with = naive_int4(x, matrix, bias.data());
        const Values without = naive_int4(x, matrix, nullptr);
        for (const Int8Kernel* kernel : int8_kernels()) {
          SCOPED_TRACE(concat(kernel->name, " m ", m, " n ", n, " k ", k));
          expect_equal_bits(int4_linear(pool, *kernel, panels, x, bias.data()), with);
          expect_equal_bits(int4_linear(pool, *kernel, panels, x, nullptr), without);
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
}

TEST(Int4Kernels, ThreadsAndRowsBesideChangeNoBit) {
  const int64_t m = 201, n = 333, k = 260;
  ThreadPool one(1);
  const Values x = normal_floats(m * k, 1), bias = normal_floats(n, 3);
  const auto matrix = Int4Matrix::quantized(one, normal_floats(n * k, 2), n, k);
  const Values expected = naive_int4(x, matrix, bias.data());
  for (const Int8Kernel* kernel : int8_kernels())
    for (const int threads : {1, 2, 3, 8}) {
      SCOPED_TRACE(concat(kernel->name, " ", threads, " threads"));
      ThreadPool pool(threads);
      const Int4Panels panels(pool, matrix);
      expect_equal_bits(int4_linear(pool, *kernel, panels, x, bias.data()), expected);
      const Values alone(x.begin() + 7 * k, x.begin() + 8 * k);
      expect_equal_bits(int4_linear(pool, *kernel, panels, alone, bias.data()),
                        Values(expected.begin() + 7 * n, expected.begin() + 8 * n));
    }
}

// The sum of a group has the largest magnitude that there is: fewer bits would lose it.
TEST(Int4Kernels, TheLargestSumsAreExact) {
  ThreadPool pool(1);
  const int64_t n = 20, k = 64;
  Values w, x;
  for (int64_t r = 0; r < n; ++r)
    for (int64_t c = 0; c < k; ++c) w.push_back(r % 2 == 0 ? 7.0f : -7.0f);
  for (int64_t i = 0; i < 3; ++i)
    for (int64_t c = 0; c < k; ++c) x.push_back(i == 0 || (i == 2 && c % 2 == 0) ? 1.0f : -1.0f);
  const auto matrix = Int4Matrix::quantized(pool, w, n, k);
  const Values expected = naive_int4(x, matrix, nullptr);
  EXPECT_NEAR(expected[0], 7 * k, 1);
  for (const Int8Kernel* kernel : int8_kernels()) {
    SCOPED_TRACE(kernel->name);
    expect_equal_bits(int4_linear(pool, *kernel, Int4Panels(pool, matrix), x, nullptr), expected);
  }
}

TEST(Int4Kernels, ARowThatIsNotFiniteShows) {
  ThreadPool pool(1);
  const int64_t n = 20, k = 37;
  const auto matrix = Int4Matrix::quantized(pool, normal_floats(n * k, 6), n, k);
  const Int4Panels panels(pool, matrix);
  Values x = normal_floats(2 * k, 8);
  const Values good = naive_int4(x, matrix, nullptr);
  x[8] = std::numeric_limits<float>::infinity();
  for (const Int8Kernel* kernel : int8_kernels()) {
    SCOPED_TRACE(kernel->name);
    const Values y = int4_linear(pool, *kernel, panels, x, nullptr);
    for (size_t j = 0; j < static_cast<size_t>(n); ++j) {
      EXPECT_TRUE(std::isnan(y[j]));
      EXPECT_EQ(y[static_cast<size_t>(n) + j], good[static_cast<size_t>(n) + j]);
    }
  }
}

TEST(Int4Panels, HaveTheCodesAndScalesOfTheMatrix) {
  ThreadPool pool(3);
  for (const int64_t columns : {1, 31, 32, 50, 96, 127}) {
    const auto matrix = Int4Matrix::quantized(pool, normal_floats(37 * columns, 9), 37, columns);
    const Int4Panels panels(pool, matrix);
    const Int4Matrix back = panels.matrix(pool);
    const auto same = [](auto one, auto other) { return std::ranges::equal(one, other); };
    EXPECT_TRUE(same(back.codes(), matrix.codes())) << columns;
    EXPECT_TRUE(same(back.scales(), matrix.scales())) << columns;

    const std::vector<int32_t> index = {36, 0, 16, 16, 15};
    const Values values = matrix.values(pool);
    const Values gathered = panels.gathered(pool, index).matrix(pool).values(pool);
    const Values addend = normal_floats(columns, 10);
    for (size_t i = 0; i < index.size(); ++i) {
      Values plain(static_cast<size_t>(columns)), sum = plain;
      panels.dequantize(index[i], 1, nullptr, plain.data());
      panels.dequantize(index[i], 2, addend.data(), sum.data());
      for (size_t c = 0; c < plain.size(); ++c) {
        const float value = values[static_cast<size_t>(index[i]) * plain.size() + c];
        EXPECT_EQ(gathered[i * plain.size() + c], value);
        EXPECT_EQ(plain[c], value);
        EXPECT_NEAR(sum[c], 2 * value + addend[c], 1e-6);
      }
    }
    expect_error(ErrorCode::invalid_argument, "index 1 is 37", [&] {
      panels.gathered(pool, std::vector<int32_t>{3, 37});
    });
  }
}

}  // namespace
}  // namespace trafo
