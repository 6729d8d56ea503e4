#include "engine/quant/gptq.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/core/numeric/cholesky.h"
#include "engine/core/status.h"

namespace trafo {
namespace {

constexpr const char* kGptqOrigin = "gptq";
constexpr double kDamping = 0.01;  // of the mean of the diagonal, as in the paper

// The upper triangular U with A^-1 = U^T U, whose rows GPTQ spreads errors with. A is symmetric.
//
// With P, which reverses the order, P A P = L L^T gives A = V V^T for the upper triangular V = P L
// P, and so U = V^-1 = P L^-1 P.
std::vector<double> error_rows(const std::vector<double>& a, size_t n) {
  std::vector<double> reversed(n * n);
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j <= i; ++j) reversed[i * n + j] = a[(n - 1 - i) * n + n - 1 - j];
  require(factorize_cholesky(reversed, n), ErrorCode::non_finite, kGptqOrigin,
          "the calibration data give no positive definite matrix: a layer's inputs are not finite");
  // The inverse of the lower triangular L, a column at a time.
  std::vector<double> inverse(n * n, 0.0);
  for (size_t i = 0; i < n; ++i) {
    const double* l = reversed.data() + i * n;
    double* to = inverse.data() + i * n;
    for (size_t k = 0; k < i; ++k) {
      const double factor = l[k];
      const double* from = inverse.data() + k * n;
      for (size_t j = 0; j <= k; ++j) to[j] -= factor * from[j];
    }
    to[i] = 1;
    for (size_t j = 0; j <= i; ++j) to[j] /= l[i];
  }
  std::vector<double> rows(n * n, 0.0);
  for (size_t i = 0; i < n; ++i)
    for (size_t j = i; j < n; ++j) rows[i * n + j] = inverse[(n - 1 - i) * n + n - 1 - j];
  return rows;
}

// One row of weights. Errors are spread in float64.
void round_row(const float* weights, size_t columns, const std::vector<double>& rows,
               uint8_t* codes, uint16_t* scales) {
  std::vector<double> w(weights, weights + columns);
  constexpr auto kGroup = static_cast<size_t>(Int4Matrix::kGroup);
  GroupScale scale{};
  for (size_t c = 0; c < columns; ++c) {
    if (c % kGroup == 0) {
      double most = 0;
      for (size_t j = c; j < std::min(columns, c + kGroup); ++j)
        most = std::max(most, std::abs(w[j]));
      scale = group_scale(formats::kInt4, static_cast<float>(most));
      scales[c / kGroup] = float_to_half(scale.value);
    }
    const int32_t code = code_of(formats::kInt4, static_cast<float>(w[c]), scale);
    Int4Matrix::set_code(codes, static_cast<int64_t>(c), code);
    const double* row = rows.data() + c * columns;
    const double error = (w[c] - static_cast<double>(code) * scale.value) / row[c];
    for (size_t j = c; j < columns; ++j) w[j] -= error * row[j];
  }
}

}  // namespace

Int4Matrix gptq_int4(ThreadPool& pool, std::span<const float> weights, int64_t rows,
                     int64_t columns, std::span<const double> hessian) {
  const auto n = static_cast<size_t>(columns);
  require(hessian.size() == n * n, ErrorCode::shape_mismatch, kGptqOrigin, "the matrix of the ",
          columns, " inputs has ", hessian.size(), " elements");
  const Int4Matrix nearest = Int4Matrix::quantized(pool, weights, rows, columns);
  double diagonal = 0;
  for (size_t i = 0; i < n; ++i) diagonal += hessian[i * n + i];
  if (diagonal == 0) return nearest;
  std::vector<double> damped(hessian.begin(), hessian.end());
  for (size_t i = 0; i < n; ++i)
    damped[i * n + i] += kDamping * diagonal / static_cast<double>(columns);
  const std::vector<double> errors = error_rows(damped, n);
  std::vector<uint8_t> codes(nearest.codes().begin(), nearest.codes().end());
  std::vector<uint16_t> scales(nearest.scales().begin(), nearest.scales().end());
  parallel_for_range(pool, rows, 8, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      round_row(weights.data() + r * columns, n, errors, codes.data() + r * nearest.row_bytes(),
                scales.data() + r * nearest.groups());
  });
  return Int4Matrix::from_codes(std::move(codes), std::move(scales), rows, columns);
}

}  // namespace trafo
