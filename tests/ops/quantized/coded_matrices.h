// Matrices in few bits with random values, and what tests compare.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "engine/core/numeric/philox.h"
#include "engine/ops/quantized_linear/quantized_linear.h"

namespace trafo::testing {

inline constexpr BasePrecision kCodedFormats[] = {BasePrecision::nf4, BasePrecision::int8,
                                                  BasePrecision::int4};

inline std::vector<double> exact_uniform(int64_t count, uint64_t seed) {
  PhiloxStream random(seed, 2);
  std::vector<double> values(static_cast<size_t>(count));
  for (double& value : values)  // exact in bfloat16
    value = static_cast<double>(
        BFloat16::from_float(static_cast<float>(random.uniform(-1, 1))).to_float());
  return values;
}

inline CodedMatrix coded_matrix(Context& context, BasePrecision precision, int64_t rows,
                                int64_t columns) {
  const std::vector<double> wide = exact_uniform(rows * columns, 9);
  const std::vector<float> values(wide.begin(), wide.end());
  CodedMatrix matrix = make_coded_matrix(context, precision, rows, columns);
  std::vector<std::byte> bytes(matrix.bytes.bytes());
  encode_base(precision, values, rows, columns, bytes);
  context.backend().copy_from_host(matrix.bytes.raw(), bytes.data(), bytes.size());
  return matrix;
}

inline std::vector<double> as_doubles(const Context& context, const Tensor& tensor) {
  std::vector<double> values;
  const auto add = [&](const auto& from) {
    for (const auto value : from) values.push_back(static_cast<double>(value));
  };
  if (tensor.dtype() == DType::f64) add(context.values<double>(tensor));
  if (tensor.dtype() == DType::f32) add(context.values<float>(tensor));
  if (tensor.dtype() == DType::bf16)
    for (const BFloat16 value : context.values<BFloat16>(tensor))
      values.push_back(static_cast<double>(value.to_float()));
  return values;
}

inline void expect_all_near(const std::vector<double>& a, const std::vector<double>& b,
                            double bound) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i)
    ASSERT_LE(std::abs(a[i] - b[i]), bound * std::max(1.0, std::abs(b[i]))) << i;
}

}  // namespace trafo::testing
