// GEMMs of bfloat16 on CUDA, with values and results as float64 on the host.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/core/numeric/philox.h"
#include "tests/ops/cuda/cuda_test.h"

namespace trafo::testing {

using Doubles = std::vector<double>;

struct Shapes {
  int64_t m, n, k;
};

class CudaGemm : public CudaTest {
 protected:
  // Values that bfloat16 holds exactly.
  Doubles random(int64_t count, double scale = 1) {
    Doubles values(static_cast<size_t>(count));
    for (double& value : values)
      value = static_cast<double>(
          BFloat16::from_float(static_cast<float>(random_.uniform(-scale, scale))).to_float());
    return values;
  }
  Tensor upload(const Doubles& values, const Shape& shape) const {
    std::vector<BFloat16> narrow;
    for (const double value : values)
      narrow.push_back(BFloat16::from_float(static_cast<float>(value)));
    return context_->from_values<BFloat16>(narrow, shape);
  }
  Tensor half(const Shape& shape) const { return context_->empty(shape, DType::bf16); }

  // Every element within `share` of itself, and `more` of the largest.
  static void expect_close(const Doubles& actual, const Doubles& expected, double share,
                           double more) {
    ASSERT_EQ(actual.size(), expected.size());
    double largest = 0;
    for (const double value : expected) largest = std::max(largest, std::abs(value));
    for (size_t i = 0; i < actual.size(); ++i)
      ASSERT_NEAR(actual[i], expected[i], share * std::abs(expected[i]) + more * largest)
          << "element " << i;
  }

  GemmParams params(const Tensor& a, const Tensor& b, const Tensor& c, const Shapes& s) const {
    GemmParams p;
    p.dtype = DType::bf16;
    p.trans_b = true;
    p.m = s.m;
    p.n = s.n;
    p.k = s.k;
    p.a = a.raw();
    p.lda = p.ldb = s.k;
    p.b = b.raw();
    p.c = c.raw();
    p.ldc = s.n;
    return p;
  }

  PhiloxStream random_{15, 16};
};

}  // namespace trafo::testing
