#include "engine/compress/whitened_svd.h"

#include <algorithm>
#include <cmath>

#include "engine/compress/symmetric_eigen.h"
#include "engine/core/numeric/cholesky.h"
#include "engine/core/numeric/portable_power.h"
#include "engine/core/status.h"

namespace trafo {
namespace {

constexpr const char* kSvdOrigin = "factorize";
constexpr double kSvdDamping = 0.01;  // of the mean of the diagonal

// a [m, k] times b [k, n]
std::vector<double> multiplied(const std::vector<double>& a, const std::vector<double>& b, size_t m,
                               size_t k, size_t n) {
  std::vector<double> product(m * n, 0.0);
  for (size_t i = 0; i < m; ++i)
    for (size_t l = 0; l < k; ++l) {
      const double factor = a[i * k + l];
      const double* from = b.data() + l * n;
      double* to = product.data() + i * n;
      for (size_t j = 0; j < n; ++j) to[j] += factor * from[j];
    }
  return product;
}

std::vector<double> transposed(const std::vector<double>& a, size_t m, size_t n) {
  std::vector<double> result(a.size());
  for (size_t i = 0; i < m; ++i)
    for (size_t j = 0; j < n; ++j) result[j * m + i] = a[i * n + j];
  return result;
}

// Rows of v become z L^-1 for rows z, in place.
void divide_by_lower(std::vector<double>& v, const std::vector<double>& lower, size_t n) {
  for (size_t at = 0; at < v.size(); at += n) {
    double* row = v.data() + at;
    for (size_t j = n; j-- > 0;) {
      const double* l = lower.data() + j * n;
      row[j] /= l[j];
      for (size_t i = 0; i < j; ++i) row[i] -= row[j] * l[i];
    }
  }
}

void damp(std::vector<double>& gram, size_t n) {
  double trace = 0;
  for (size_t i = 0; i < n; ++i) trace += gram[i * n + i];
  const double added = trace == 0 ? 1 : kSvdDamping * trace / static_cast<double>(n);
  for (size_t i = 0; i < n; ++i) gram[i * n + i] += added;
}

void require_finite_elements(const std::vector<double>& values, const char* what) {
  require(std::all_of(values.begin(), values.end(), [](double x) { return std::isfinite(x); }),
          ErrorCode::non_finite, kSvdOrigin, what, " that is not finite");
}

}  // namespace

WhitenedSvd::WhitenedSvd(std::vector<double> w, std::vector<double> gram, int64_t rows,
                         int64_t columns)
    : rows_(static_cast<size_t>(rows)), columns_(static_cast<size_t>(columns)), w_(std::move(w)) {
  require_finite_elements(w_, "a weight");
  require_finite_elements(gram, "an input");
  damp(gram, columns_);
  const size_t n = std::min(rows_, columns_);
  // The smaller of (W L) (W L)^T = W G W^T and (W L)^T (W L).
  std::vector<double> squares;
  if (rows_ <= columns_) {
    squares = multiplied(multiplied(w_, gram, rows_, columns_, columns_),
                         transposed(w_, rows_, columns_), rows_, columns_, rows_);
  } else {
    require(factorize_cholesky(gram, columns_), ErrorCode::non_finite, kSvdOrigin,
            "the inputs give no positive definite matrix");
    for (size_t i = 0; i < columns_; ++i)
      std::fill_n(gram.begin() + static_cast<std::ptrdiff_t>(i * columns_ + i + 1),
                  columns_ - i - 1, 0.0);
    whitener_ = std::move(gram);
    const std::vector<double> product = multiplied(w_, whitener_, rows_, columns_, columns_);
    squares = multiplied(transposed(product, rows_, columns_), product, columns_, rows_, columns_);
  }
  SymmetricEigen eigen = symmetric_eigen(std::move(squares), n);
  energies_ = std::move(eigen.values);
  for (double& energy : energies_) energy = std::max(energy, 0.0);
  vectors_ = std::move(eigen.vectors);
}

WhitenedSvd::Factors WhitenedSvd::factors(int64_t rank) const {
  const auto r = static_cast<size_t>(rank);
  const size_t n = energies_.size();
  require(r >= 1 && r <= n, ErrorCode::internal, kSvdOrigin, "there is no rank ", rank, " of ", n);
  const std::vector<double> chosen(vectors_.begin(),
                                   vectors_.begin() + static_cast<std::ptrdiff_t>(r * n));
  Factors f;
  if (rows_ <= columns_) {  // U_r and U_r^T W
    f.u = transposed(chosen, r, n);
    f.v = multiplied(chosen, w_, r, rows_, columns_);
  } else {  // W L V_r and V_r^T L^-1
    f.u = multiplied(w_, multiplied(whitener_, transposed(chosen, r, n), n, n, r), rows_, columns_,
                     r);
    f.v = chosen;
    divide_by_lower(f.v, whitener_, columns_);
  }
  std::vector<double> length(r, 0.0);  // squares, of the columns of u
  for (size_t i = 0; i < f.u.size(); ++i) length[i % r] += f.u[i] * f.u[i];
  std::vector<double> factor(r, 1.0);
  for (size_t i = 0; i < r; ++i) {
    double row = 0;
    for (size_t j = 0; j < columns_; ++j) row += f.v[i * columns_ + j] * f.v[i * columns_ + j];
    if (row > 0 && length[i] > 0) factor[i] = portable_pow(row / length[i], 0.25);
  }
  for (size_t i = 0; i < f.u.size(); ++i) f.u[i] *= factor[i % r];
  for (size_t i = 0; i < f.v.size(); ++i) f.v[i] /= factor[i / columns_];
  return f;
}

}  // namespace trafo
