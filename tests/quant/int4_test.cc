#include "engine/quant/int4_matrix.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/core/numeric/half.h"
#include "tests/support/errors.h"

namespace trafo::testing {
namespace {

TEST(Int4Matrix, GroupsHaveTheirScalesAndBytesTwoCodes) {
  ThreadPool pool(1);
  // Two groups, the second of three columns, with largest magnitudes of 7 and 0.7.
  std::vector<float> row(35);
  for (size_t c = 0; c < 32; ++c) row[c] = static_cast<float>(c % 15) - 7.0f;
  row[32] = 0.7f;
  row[33] = -0.2f;
  row[34] = 0.04f;
  const auto matrix = Int4Matrix::quantized(pool, row, 1, 35);
  EXPECT_EQ(matrix.groups(), 2);
  EXPECT_EQ(matrix.row_bytes(), 18);
  EXPECT_EQ(matrix.scales()[0], 0x3c00);  // 1
  EXPECT_EQ(matrix.scales()[1], float_to_half(0.1f));
  EXPECT_EQ(matrix.codes()[0], 0x21);   // -7 + 8 in the low bits, -6 + 8 in the high ones
  EXPECT_EQ(matrix.codes()[16], 0x6f);  // 7 and -2
  EXPECT_EQ(matrix.codes()[17], 0x88);  // 0, and nothing
  const auto values = matrix.values(pool);
  for (size_t c = 0; c < 32; ++c) EXPECT_EQ(values[c], row[c]) << c;
  EXPECT_NEAR(values[32], 0.7, 1e-3);
}

TEST(Int4Matrix, CodesAndScalesMakeTheSameMatrix) {
  ThreadPool pool(1);
  std::vector<float> values(7 * 50);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i) * 0.7f);
  const auto matrix = Int4Matrix::quantized(pool, values, 7, 50);
  const auto again =
      Int4Matrix::from_codes({matrix.codes().begin(), matrix.codes().end()},
                             {matrix.scales().begin(), matrix.scales().end()}, 7, 50);
  EXPECT_EQ(again.values(pool), matrix.values(pool));
  // Rounded values stay unchanged.
  const auto rounded = matrix.values(pool);
  EXPECT_EQ(Int4Matrix::quantized(pool, rounded, 7, 50).values(pool), rounded);
}

// The largest and the smallest scales that a float16 has.
TEST(Int4Matrix, ScalesStayInTheRangeOfFloat16) {
  ThreadPool pool(1);
  const std::vector<float> values = {1e6f, -3e5f, 1e-12f, 1e-13f, 0, 0};
  const auto large = Int4Matrix::quantized(pool, std::span(values).first(2), 1, 2);
  EXPECT_EQ(large.values(pool)[0], 7 * 65504.0f);
  const auto small = Int4Matrix::quantized(pool, std::span(values).subspan(2), 2, 2);
  for (const float value : small.values(pool)) EXPECT_EQ(value, 0);
}

TEST(Int4Matrix, WhatCannotBeIsNamed) {
  ThreadPool pool(1);
  std::vector<float> values(2 * 3, 1.0f);
  values[4] = NAN;
  expect_error(ErrorCode::invalid_argument, "row 1 has a value that is not finite",
               [&] { Int4Matrix::quantized(pool, values, 2, 3); });
  expect_error(ErrorCode::invalid_argument, "are not 2 rows of 4",
               [&] { Int4Matrix::quantized(pool, values, 2, 4); });
  const std::vector<uint8_t> codes(4, 0x88);
  expect_error(ErrorCode::invalid_argument, "row 1 has the code -8", [&] {
    Int4Matrix::from_codes({0x88, 0x88, 0x88, 0x80}, {0, 0}, 2, 3);
  });
  expect_error(ErrorCode::invalid_argument, "row 1 has the scale", [&] {
    Int4Matrix::from_codes(codes, {0x3c00, 0xbc00}, 2, 3);
  });
  expect_error(ErrorCode::invalid_argument, "row 0 has the scale", [&] {
    Int4Matrix::from_codes(codes, {0x7c00, 0}, 2, 3);
  });
  expect_error(ErrorCode::invalid_argument, "1 scales are not",
               [&] { Int4Matrix::from_codes(codes, {0}, 2, 3); });
}

}  // namespace
}  // namespace trafo::testing
