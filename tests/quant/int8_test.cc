// int8 products: every kernel of this machine against loops that say what is computed, bit for bit.
#include "engine/quant/int8_kernel.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/support/errors.h"

namespace trafo {
namespace {

using Floats = std::vector<float>;

Floats random_floats(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Floats values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

struct Row {
  std::vector<int32_t> codes;
  float scale = 0;
};

// The least float with 8 significant bits that is not below x.
float up_to_bfloat16(float x) {
  int exponent = 0;
  const float mantissa = std::frexp(x, &exponent);
  return std::ldexp(std::ceil(mantissa * 256), exponent - 8);
}

// The formula of int8_kernel.h.
Row quantized_row(const float* x, int64_t count) {
  float most = 0;
  for (int64_t c = 0; c < count; ++c) most = std::max(most, std::abs(x[c]));
  Row row{std::vector<int32_t>(static_cast<size_t>(count)), up_to_bfloat16(most / 127)};
  for (int64_t c = 0; c < count && most > 0; ++c)
    row.codes[static_cast<size_t>(c)] =
        static_cast<int32_t>(std::nearbyint(x[c] * (1.0f / row.scale)));
  return row;
}

Floats naive_linear(const Floats& x, const Floats& w, const float* bias, int64_t m, int64_t n,
                    int64_t k) {
  Floats y;
  std::vector<Row> rows;
  for (int64_t j = 0; j < n; ++j) rows.push_back(quantized_row(w.data() + j * k, k));
  for (int64_t i = 0; i < m; ++i) {
    const Row row = quantized_row(x.data() + i * k, k);
    for (int64_t j = 0; j < n; ++j) {
      const Row& other = rows[static_cast<size_t>(j)];
      int64_t sum = 0;
      for (size_t c = 0; c < row.codes.size(); ++c) sum += row.codes[c] * other.codes[c];
      y.push_back(std::fma(static_cast<float>(static_cast<int32_t>(sum)), row.scale * other.scale,
                           bias ? bias[j] : 0.0f));
    }
  }
  return y;
}

void expect_same_bits(const Floats& actual, const Floats& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i)
    ASSERT_EQ(std::bit_cast<uint32_t>(actual[i]), std::bit_cast<uint32_t>(expected[i]))
        << "element " << i << ": " << actual[i] << " and " << expected[i];
}

class Int8Test : public ::testing::Test {
 protected:
  Floats linear(const Int8Kernel& kernel, const Int8Matrix& w, const Floats& x, const float* bias,
                ThreadPool& pool) const {
    const int64_t m = static_cast<int64_t>(x.size()) / w.columns();
    Floats y(static_cast<size_t>(m * w.rows()), -1.0f);
    int8_gemm(pool, kernel, w, x.data(), m, w.columns(), bias, y.data(), w.rows());
    return y;
  }
  Floats linear(const Int8Kernel& kernel, const Int8Matrix& w, const Floats& x,
                const float* bias = nullptr) {
    return linear(kernel, w, x, bias, pool_);
  }

  ThreadPool pool_{1};
};

TEST_F(Int8Test, TheListOfKernelsEndsWithThePortableOne) {
  ASSERT_FALSE(int8_kernels().empty());
  EXPECT_STREQ(int8_kernels().back()->name, "portable");
  EXPECT_EQ(&best_int8_kernel(), int8_kernels().front());
}

TEST_F(Int8Test, EveryKernelComputesTheFormula) {
  for (const int64_t k : {1, 3, 4, 8, 17, 64, 257})
    for (const int64_t n : {1, 15, 16, 17, 63, 64, 65, 130})
      for (const int64_t m : {1, 2, 3, 5, 6, 7, 13}) {
        const auto seed = static_cast<unsigned>(k * 10007 + n * 101 + m);
        const Floats x = random_floats(m * k, seed), w = random_floats(n * k, seed + 1);
        const Floats bias = random_floats(n, seed + 2);
        const Int8Matrix matrix = Int8Matrix::quantized(pool_, w.data(), n, k);
        const Floats with = naive_linear(x, w, bias.data(), m, n, k);
        const Floats without = naive_linear(x, w, nullptr, m, n, k);
        for (const Int8Kernel* kernel : int8_kernels()) {
          SCOPED_TRACE(concat(kernel->name, " m ", m, " n ", n, " k ", k));
          expect_same_bits(linear(*kernel, matrix, x, bias.data()), with);
          expect_same_bits(linear(*kernel, matrix, x), without);
          if (HasFatalFailure()) return;
        }
      }
}

TEST_F(Int8Test, QuantizingARowWritesNothingBehindIt) {
  for (const Int8Kernel* kernel : int8_kernels())
    for (int64_t count = 0; count <= 40; ++count) {
      const Floats x = random_floats(count, static_cast<unsigned>(count));
      std::vector<uint8_t> codes(static_cast<size_t>(count) + 64, 0x5a);
      kernel->quantize(x.data(), count, kernel->flip, codes.data());
      for (size_t i = static_cast<size_t>(count); i < codes.size(); ++i)
        ASSERT_EQ(codes[i], 0x5a) << kernel->name << " count " << count << " byte " << i;
    }
}

TEST_F(Int8Test, ThreadsAndRowsBesideChangeNoBit) {
  const int64_t m = 201, n = 333, k = 260;
  const Floats x = random_floats(m * k, 1), w = random_floats(n * k, 2), bias = random_floats(n, 3);
  const Int8Matrix matrix = Int8Matrix::quantized(pool_, w.data(), n, k);
  const Floats expected = naive_linear(x, w, bias.data(), m, n, k);
  for (const Int8Kernel* kernel : int8_kernels())
    for (const int threads : {1, 2, 3, 8}) {
      SCOPED_TRACE(concat(kernel->name, " ", threads, " threads"));
      ThreadPool pool(threads);
      expect_same_bits(linear(*kernel, matrix, x, bias.data(), pool), expected);
      const Floats alone(x.begin() + 7 * k, x.begin() + 8 * k);
      expect_same_bits(linear(*kernel, matrix, alone, bias.data(), pool),
                       Floats(expected.begin() + 7 * n, expected.begin() + 8 * n));
    }
}

// The largest sums that there are: an int16 or a saturating kernel would lose them.
TEST_F(Int8Test, TheLargestSumsAreExact) {
  const int64_t k = Int8Matrix::kMaxColumns, n = 4;
  Floats w, x(static_cast<size_t>(2 * k));
  for (int64_t j = 0; j < n; ++j)
    for (int64_t c = 0; c < k; ++c) w.push_back(j == 0 || (j == 2 && c % 2 == 0) ? 1.0f : -1.0f);
  for (int64_t c = 0; c < k; ++c) {
    x[static_cast<size_t>(c)] = -1.0f;
    x[static_cast<size_t>(k + c)] = c % 2 == 0 ? 1.0f : -1.0f;
  }
  const Int8Matrix matrix = Int8Matrix::quantized(pool_, w.data(), n, k);
  const Floats expected = naive_linear(x, w, nullptr, 2, n, k);
  EXPECT_NEAR(expected[0], -static_cast<double>(k), 1e-2 * static_cast<double>(k));
  for (const Int8Kernel* kernel : int8_kernels()) {
    SCOPED_TRACE(kernel->name);
    expect_same_bits(linear(*kernel, matrix, x), expected);
  }
}

// A code is off by half a step at most, so a product of k terms is off by
// k (127 s_x s_w / 2 + 127 s_x s_w / 2 + s_x s_w / 4), and by float32's rounding of the result.
TEST_F(Int8Test, TheErrorHasABound) {
  const int64_t m = 9, n = 70, k = 300;
  const Floats x = random_floats(m * k, 4), w = random_floats(n * k, 5);
  const Int8Matrix matrix = Int8Matrix::quantized(pool_, w.data(), n, k);
  const Floats y = linear(best_int8_kernel(), matrix, x);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double exact = 0;
      for (int64_t c = 0; c < k; ++c)
        exact += static_cast<double>(x[static_cast<size_t>(i * k + c)]) *
                 static_cast<double>(w[static_cast<size_t>(j * k + c)]);
      const double steps = static_cast<double>(quantized_row(x.data() + i * k, k).scale) *
                           static_cast<double>(matrix.scales()[static_cast<size_t>(j)]);
      const auto value = static_cast<double>(y[static_cast<size_t>(i * n + j)]);
      EXPECT_LE(std::abs(value - exact), 1.001 * static_cast<double>(k) * 127.25 * steps);
      // The sum of such errors if they are independent: far below that.
      EXPECT_LE(std::abs(value - exact), 6 * std::sqrt(static_cast<double>(k)) * 127 * steps);
    }
}

TEST_F(Int8Test, WhatIsNotFiniteShowsAndSmallRowsAreZero) {
  const int64_t k = 37, n = 20;
  const Floats w = random_floats(n * k, 6), bias = random_floats(n, 7);
  const Int8Matrix matrix = Int8Matrix::quantized(pool_, w.data(), n, k);
  for (const Int8Kernel* kernel : int8_kernels()) {
    SCOPED_TRACE(kernel->name);
    for (const int64_t place : {0, 8, 36})
      for (const float bad :
           {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
        Floats x = random_floats(2 * k, 8);
        const Floats good = linear(*kernel, matrix, x, bias.data());
        x[static_cast<size_t>(place)] = bad;
        const Floats y = linear(*kernel, matrix, x, bias.data());
        for (size_t j = 0; j < static_cast<size_t>(n); ++j) {
          EXPECT_TRUE(std::isnan(y[j]));
          EXPECT_EQ(y[static_cast<size_t>(n) + j], good[static_cast<size_t>(n) + j]);
        }
      }
    for (const float small : {0.0f, 0x1p-101f, std::numeric_limits<float>::denorm_min()})
      expect_same_bits(linear(*kernel, matrix, Floats(static_cast<size_t>(k), small), bias.data()),
                       bias);
  }
}

TEST_F(Int8Test, QuantizationAndDequantizationAreTheSameEverywhere) {
  for (const int64_t count : {1, 3, 4, 7, 8, 9, 100, 515}) {
    const Floats x = random_floats(count, static_cast<unsigned>(count));
    const Floats addend = random_floats(count, 99);
    const Row expected = quantized_row(x.data(), count);
    const Int8Matrix matrix = Int8Matrix::quantized(pool_, x.data(), 1, count);
    for (const Int8Kernel* kernel : int8_kernels()) {
      SCOPED_TRACE(concat(kernel->name, " ", count));
      std::vector<uint8_t> codes(static_cast<size_t>(count));
      EXPECT_EQ(kernel->quantize(x.data(), count, 0x80, codes.data()), expected.scale);
      Floats sums, products;
      for (size_t c = 0; c < codes.size(); ++c) {
        EXPECT_EQ(int32_t{codes[c]} - 128, expected.codes[c]);
        sums.push_back(std::fma(static_cast<float>(expected.codes[c]), expected.scale, addend[c]));
        products.push_back(static_cast<float>(expected.codes[c]) * expected.scale);
        EXPECT_LE(std::abs(products[c] - x[c]), 0.5001f * expected.scale);
      }
      Floats y(static_cast<size_t>(count));
      kernel->dequantize(matrix.row(0), count, expected.scale, addend.data(), y.data());
      expect_same_bits(y, sums);
      kernel->dequantize(matrix.row(0), count, expected.scale, nullptr, y.data());
      expect_same_bits(y, products);
    }
  }
}

TEST_F(Int8Test, ScalesAreTheNextBfloat16) {
  for (const float most : {1.0f, 127.0f, std::nextafter(127.0f, 128.0f), 0.3f, 0x1p-100f,
                           std::numeric_limits<float>::max()}) {
    const float scale = group_scale(formats::kInt8, most).value, exact = most / 127;
    EXPECT_EQ(scale, up_to_bfloat16(exact)) << most;
    EXPECT_GE(scale, exact) << most;
    EXPECT_LE(scale, exact * (1 + 1.0f / 128)) << most;
  }
  EXPECT_EQ(group_scale(formats::kInt8, 127.0f).value, 1.0f);
  EXPECT_EQ(group_scale(formats::kInt8, std::nextafter(127.0f, 128.0f)).value, 1.0f + 1.0f / 128);
}

TEST_F(Int8Test, CodesGoInAndComeOut) {
  const int64_t rows = 37, columns = 21;
  std::vector<int8_t> codes;
  Floats scales;
  for (int64_t i = 0; i < rows * columns; ++i)
    codes.push_back(static_cast<int8_t>(i * 7 % 255 - 127));
  for (int64_t r = 0; r < rows; ++r) scales.push_back(0.5f * static_cast<float>(r));
  ThreadPool threads(3);
  const Int8Matrix matrix = Int8Matrix::from_codes(threads, codes, scales, columns);
  std::vector<int8_t> back(codes.size());
  matrix.read_codes(threads, back);
  EXPECT_EQ(back, codes);
  EXPECT_EQ(Floats(matrix.scales().begin(), matrix.scales().end()), scales);
  EXPECT_EQ(matrix.bytes(), static_cast<size_t>(3 * 6 * 64 + 48 * 4 + 48 * 4));

  const std::vector<int32_t> index = {36, 0, 5, 5, 16};
  const Int8Matrix some = matrix.gathered(threads, index);
  EXPECT_EQ(some.rows(), 5);
  const Floats x = random_floats(2 * columns, 9);
  const Floats all = linear(best_int8_kernel(), matrix, x);
  const Floats few = linear(best_int8_kernel(), some, x);
  for (size_t i = 0; i < 2; ++i)
    for (size_t j = 0; j < index.size(); ++j)
      EXPECT_EQ(few[i * index.size() + j],
                all[i * static_cast<size_t>(rows) + static_cast<size_t>(index[j])]);
}

TEST_F(Int8Test, WhatCannotBeIsRefused) {
  const auto refused = [](const char* text, auto&& call) {
    expect_error(ErrorCode::invalid_argument, text, call);
  };
  const std::vector<int8_t> codes(6, 1);
  const Floats scales = {1, 2};
  const Int8Matrix matrix = Int8Matrix::from_codes(pool_, codes, scales, 3);
  refused("6 codes are not 2 rows of 4", [&] { Int8Matrix::from_codes(pool_, codes, scales, 4); });
  refused("row 1 has the scale -1", [&] {
    Int8Matrix::from_codes(pool_, codes, Floats{1, -1}, 3);
  });
  refused("row 0 has the scale nan", [&] {
    Int8Matrix::from_codes(pool_, codes, Floats{std::numeric_limits<float>::quiet_NaN(), 1}, 3);
  });
  refused("row 1 has the code -128", [&] {
    Int8Matrix::from_codes(pool_, std::vector<int8_t>{1, 1, 1, 1, -128, 1}, scales, 3);
  });
  refused("index 1 is 2", [&] { matrix.gathered(pool_, std::vector<int32_t>{0, 2}); });
  refused("index 0 is -1", [&] { matrix.gathered(pool_, std::vector<int32_t>{-1}); });
  refused("too long for int8", [&] {
    const Floats row(static_cast<size_t>(Int8Matrix::kMaxColumns) + 1);
    Int8Matrix::quantized(pool_, row.data(), 1, static_cast<int64_t>(row.size()));
  });
  refused("row 1 has a value that is not finite", [&] {
    const Floats two = {1, 2, 3, std::numeric_limits<float>::infinity()};
    Int8Matrix::quantized(pool_, two.data(), 2, 2);
  });
}

TEST_F(Int8Test, EmptyMatricesAndInputs) {
  const Int8Matrix nothing = Int8Matrix::from_codes(pool_, {}, {}, 5);
  EXPECT_EQ(nothing.rows(), 0);
  const Floats w = random_floats(10, 1);
  const Int8Matrix matrix = Int8Matrix::quantized(pool_, w.data(), 2, 5);
  for (const Int8Kernel* kernel : int8_kernels()) {
    EXPECT_TRUE(linear(*kernel, matrix, {}).empty());
    EXPECT_TRUE(linear(*kernel, nothing, random_floats(5, 2)).empty());
  }
}

}  // namespace
}  // namespace trafo
