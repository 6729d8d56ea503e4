// GPTQ against the algorithm of the paper, in another order of operations.
#include "engine/quant/gptq.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/core/numeric/philox.h"

namespace trafo {
namespace {

// The algorithm as the paper states it (Frantar et al., arXiv 2210.17323, equations 2 and 3): the
// inverse of the damped matrix, from which one column after the other is removed. The scale of a
// group is that of the weights as the columns before it have changed them.
TEST(Gptq, RoundsAsThePaperStates) {
  constexpr size_t kColumns = 96, kRows = 4, kGroup = 32;
  PhiloxStream random(5, 1);
  const auto draw = [&] { return random.uniform(-1, 1); };
  std::vector<double> hessian(kColumns * kColumns);
  for (int sample = 0; sample < 300; ++sample) {
    std::vector<double> x(kColumns);
    const double common = draw();
    for (double& each : x) each = draw() + 2 * common;  // so that errors are spread far
    for (size_t i = 0; i < kColumns; ++i)
      for (size_t j = 0; j < kColumns; ++j) hessian[i * kColumns + j] += x[i] * x[j];
  }
  std::vector<float> weights(kRows * kColumns);
  for (float& weight : weights) weight = static_cast<float>(draw());
  ThreadPool pool(1);
  const Int4Matrix matrix = gptq_int4(pool, weights, kRows, kColumns, hessian);
  const std::vector<float> values = matrix.values(pool);

  std::vector<double> damped = hessian;
  double diagonal = 0;
  for (size_t i = 0; i < kColumns; ++i) diagonal += hessian[i * kColumns + i];
  for (size_t i = 0; i < kColumns; ++i) damped[i * kColumns + i] += 0.01 * diagonal / kColumns;
  std::vector<double> inverse(kColumns * kColumns);  // by Gauss and Jordan
  for (size_t i = 0; i < kColumns; ++i) inverse[i * kColumns + i] = 1;
  for (size_t i = 0; i < kColumns; ++i) {
    const double pivot = damped[i * kColumns + i];
    for (size_t j = 0; j < kColumns; ++j) {
      damped[i * kColumns + j] /= pivot;
      inverse[i * kColumns + j] /= pivot;
    }
    for (size_t k = 0; k < kColumns; ++k) {
      const double factor = damped[k * kColumns + i];
      if (k == i || factor == 0) continue;
      for (size_t j = 0; j < kColumns; ++j) {
        damped[k * kColumns + j] -= factor * damped[i * kColumns + j];
        inverse[k * kColumns + j] -= factor * inverse[i * kColumns + j];
      }
    }
  }
  double moved = 0;  // how far the scales are from those of the original weights
  for (size_t r = 0; r < kRows; ++r) {
    std::vector<double> w(weights.begin() + static_cast<ptrdiff_t>(r * kColumns),
                          weights.begin() + static_cast<ptrdiff_t>((r + 1) * kColumns));
    const std::vector<double> original = w;
    std::vector<double> left = inverse;
    double scale = 0;
    for (size_t c = 0; c < kColumns; ++c) {
      if (c % kGroup == 0) {
        double most = 0, most_before = 0;
        for (size_t j = c; j < c + kGroup; ++j) {
          most = std::max(most, std::abs(w[j]));
          most_before = std::max(most_before, std::abs(original[j]));
        }
        scale = static_cast<double>(half_to_float(matrix.scales()[(r * kColumns + c) / kGroup]));
        const double wanted =
            static_cast<double>(group_scale(formats::kInt4, static_cast<float>(most)).value);
        EXPECT_NEAR(scale, wanted, wanted / 1024) << r << ", " << c;
        moved = std::max(moved, std::abs(most / most_before - 1));
      }
      const double rounded = static_cast<double>(values[r * kColumns + c]);
      EXPECT_LE(std::abs(rounded - w[c]), scale / 2 * (1 + 1e-4)) << r << ", " << c;
      const double error = (w[c] - rounded) / left[c * kColumns + c];
      for (size_t j = c + 1; j < kColumns; ++j) w[j] -= error * left[c * kColumns + j];
      const std::vector<double> row(left.begin() + static_cast<ptrdiff_t>(c * kColumns),
                                    left.begin() + static_cast<ptrdiff_t>((c + 1) * kColumns));
      for (size_t i = c + 1; i < kColumns; ++i)
        for (size_t j = c + 1; j < kColumns; ++j)
          left[i * kColumns + j] -= row[i] * row[j] / row[c];
    }
  }
  EXPECT_GT(moved, 0.01);  // ten times the bound above, or the test shows nothing
}

// Two inputs that are always equal: what the first weight loses, the second makes up for.
TEST(Gptq, AnErrorIsMadeUpForByTheNextColumn) {
  ThreadPool pool(1);
  const std::vector<float> weights = {7, 0.4f, 0.4f, 0.4f};
  const std::vector<double> inputs = {1, 0, 0, 0,  //
                                      0, 1, 1, 1,  //
                                      0, 1, 1, 1,  //
                                      0, 1, 1, 1};
  const auto matrix = gptq_int4(pool, weights, 1, 4, inputs);
  const auto values = matrix.values(pool);
  EXPECT_EQ(values[0], 7);
  EXPECT_EQ(values[1] + values[2] + values[3], 1);  // 1.2, and 0 if each is rounded by itself
  const std::vector<double> none(16);
  EXPECT_EQ(gptq_int4(pool, weights, 1, 4, none).values(pool),
            Int4Matrix::quantized(pool, weights, 1, 4).values(pool));
}

}  // namespace
}  // namespace trafo
