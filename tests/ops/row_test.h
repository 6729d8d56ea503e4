// Small helpers for the tests of ops over rows.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "engine/ops/op_kernel.h"
#include "tests/ops/op_cases.h"
#include "tests/support/errors.h"

namespace trafo::testing {

inline std::unique_ptr<Context> cpu_context(int threads = 1) {
  return make_context({DeviceKind::cpu, 0}, threads);
}

// A float32 tensor with one value everywhere.
inline Tensor filled(Context& context, const Shape& shape, float value) {
  const std::vector<float> values(static_cast<size_t>(element_count(shape)), value);
  return context.from_values<float>(values, shape);
}

inline std::vector<double> doubles(const Tensor& tensor) {
  std::vector<double> out(static_cast<size_t>(tensor.numel()));
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = tensor.dtype() == DType::f64 ? tensor.data<double>()[i]
                                          : static_cast<double>(tensor.data<float>()[i]);
  return out;
}

// Largest difference relative to the largest expected element (at least 1); NaN if there is one.
inline double relative_error(const std::vector<double>& actual,
                             const std::vector<double>& expected) {
  EXPECT_EQ(actual.size(), expected.size());
  double worst = 0, scale = 1;
  for (size_t i = 0; i < std::min(actual.size(), expected.size()); ++i) {
    const double error = std::abs(actual[i] - expected[i]);
    if (!(error <= worst)) worst = error;
    scale = std::max(scale, std::abs(expected[i]));
  }
  return worst / scale;
}

}  // namespace trafo::testing
