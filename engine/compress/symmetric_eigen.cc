#include "engine/compress/symmetric_eigen.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "engine/core/status.h"

namespace trafo {
namespace {

constexpr int kMostIterations = 60;  // of one eigenvalue; two are usual

// A = Q T Q^T: T has diagonal d [n] and subdiagonal e [n], e[i] beside d[i] and d[i + 1]. Row i
// of q is column i of Q.
struct Tridiagonal {
  std::vector<double> d, e, q;
};

Tridiagonal tridiagonal(std::vector<double> a, size_t n) {
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < i; ++j) a[j * n + i] = a[i * n + j];
  Tridiagonal t{std::vector<double>(n), std::vector<double>(n), std::vector<double>(n * n, 0.0)};
  std::vector<std::vector<double>> reflectors;  // v of I - 2 v v^T, from row k + 1 on
  std::vector<double> p(n);
  for (size_t k = 0; k + 2 < n; ++k) {
    const size_t first = k + 1, size = n - first;
    std::vector<double> v(size);
    double scale = 0;
    for (size_t i = 0; i < size; ++i) {
      v[i] = a[(first + i) * n + k];
      scale = std::max(scale, std::abs(v[i]));
    }
    double norm = 0;
    for (size_t i = 0; i < size && scale > 0; ++i) norm += (v[i] / scale) * (v[i] / scale);
    norm = scale * std::sqrt(norm);
    const double alpha = v[0] > 0 ? -norm : norm;  // what the column becomes
    v[0] -= alpha;
    double squares = 0;
    if (norm > 0)
      for (const double value : v) squares += (value / norm) * (value / norm);
    if (!(squares > 0)) {  // zeros, or elements that are not finite
      reflectors.emplace_back();
      t.e[k] = a[first * n + k];
      continue;
    }
    const double unit = 1 / (norm * std::sqrt(squares));
    for (double& value : v) value *= unit;
    t.e[k] = alpha;
    // B - v w^T - w v^T with p = 2 B v and w = p - (p^T v) v.
    std::fill(p.begin(), p.end(), 0.0);
    for (size_t i = 0; i < size; ++i) {
      const double* row = a.data() + (first + i) * n + first;
      const double factor = 2 * v[i];
      for (size_t j = 0; j < size; ++j) p[j] += factor * row[j];
    }
    double inner = 0;
    for (size_t i = 0; i < size; ++i) inner += p[i] * v[i];
    for (size_t i = 0; i < size; ++i) p[i] -= inner * v[i];
    for (size_t i = 0; i < size; ++i) {
      double* row = a.data() + (first + i) * n + first;
      const double vi = v[i], wi = p[i];
      for (size_t j = 0; j < size; ++j) row[j] -= vi * p[j] + wi * v[j];
    }
    reflectors.push_back(std::move(v));
  }
  if (n > 1) t.e[n - 2] = a[(n - 1) * n + n - 2];
  for (size_t i = 0; i < n; ++i) {
    t.d[i] = a[i * n + i];
    t.q[i * n + i] = 1;
  }
  // Q^T = (H_0 H_1 ...)^T, from the right: row by row, the last reflector first.
  for (size_t k = reflectors.size(); k-- > 0;) {
    const std::vector<double>& v = reflectors[k];
    if (v.empty()) continue;
    const size_t first = k + 1;
    for (size_t i = first; i < n; ++i) {
      double* row = t.q.data() + i * n + first;
      double inner = 0;
      for (size_t j = 0; j < v.size(); ++j) inner += row[j] * v[j];
      inner *= 2;
      for (size_t j = 0; j < v.size(); ++j) row[j] -= inner * v[j];
    }
  }
  return t;
}

// Turns rows i and i + 1 of q by the angle with this cosine and sine.
void turn_rows(std::vector<double>& q, size_t n, size_t i, double c, double s) {
  double* upper = q.data() + i * n;
  double* lower = upper + n;
  for (size_t k = 0; k < n; ++k) {
    const double h = lower[k];
    lower[k] = s * upper[k] + c * h;
    upper[k] = c * upper[k] - s * h;
  }
}

// The first m >= l whose subdiagonal element is negligible.
size_t block_end(const Tridiagonal& t, size_t l, size_t n) {
  size_t m = l;
  for (; m + 1 < n; ++m) {
    const double around = std::abs(t.d[m]) + std::abs(t.d[m + 1]);
    if (std::abs(t.e[m]) <= std::numeric_limits<double>::epsilon() * around) break;
  }
  return m;
}

// sqrt(a^2 + b^2) without overflow. Not std::hypot, which needs glibc 2.35 where it is compiled
// with that one.
double length(double a, double b) {
  const auto [small, large] = std::minmax({std::abs(a), std::abs(b)});
  if (large == 0) return 0;
  return large * std::sqrt(1 + (small / large) * (small / large));
}

// One implicit QL step with Wilkinson's shift on rows l to m.
void ql_step(Tridiagonal& t, size_t l, size_t m, size_t n) {
  double g = (t.d[l + 1] - t.d[l]) / (2 * t.e[l]);
  double r = length(g, 1);
  g = t.d[m] - t.d[l] + t.e[l] / (g + std::copysign(r, g));
  double s = 1, c = 1, p = 0;
  for (size_t i = m; i-- > l;) {
    const double f = s * t.e[i], b = c * t.e[i];
    r = length(f, g);
    t.e[i + 1] = r;
    if (r == 0) {  // the block splits
      t.d[i + 1] -= p;
      t.e[m] = 0;
      return;
    }
    s = f / r;
    c = g / r;
    g = t.d[i + 1] - p;
    r = (t.d[i] - g) * s + 2 * c * b;
    p = s * r;
    t.d[i + 1] = g + p;
    g = c * r - b;
    turn_rows(t.q, n, i, c, s);
  }
  t.d[l] -= p;
  t.e[l] = g;
  t.e[m] = 0;
}

}  // namespace

SymmetricEigen symmetric_eigen(std::vector<double> a, size_t n) {
  Tridiagonal t = tridiagonal(std::move(a), n);
  for (size_t l = 0; l < n; ++l)
    for (int iteration = 0;; ++iteration) {
      const size_t m = block_end(t, l, n);
      if (m == l) break;
      require(iteration < kMostIterations && std::isfinite(t.d[l]), ErrorCode::non_finite,
              "eigenvalues", "the iterations do not end: the matrix is not finite");
      ql_step(t, l, m, n);
    }
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t x, size_t y) { return t.d[x] > t.d[y]; });
  SymmetricEigen result{std::vector<double>(n), std::vector<double>(n * n)};
  for (size_t i = 0; i < n; ++i) {
    result.values[i] = t.d[order[i]];
    std::copy_n(t.q.begin() + static_cast<std::ptrdiff_t>(order[i] * n), n,
                result.vectors.begin() + static_cast<std::ptrdiff_t>(i * n));
  }
  return result;
}

}  // namespace trafo
