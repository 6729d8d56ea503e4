#include "engine/core/numeric/cholesky.h"

#include <cmath>

namespace trafo {

bool factorize_cholesky(std::vector<double>& a, size_t n) {
  for (size_t j = 0; j < n; ++j) {
    double* row_j = a.data() + j * n;
    for (size_t k = 0; k < j; ++k) row_j[j] -= row_j[k] * row_j[k];
    if (!(row_j[j] > 0)) return false;
    row_j[j] = std::sqrt(row_j[j]);
    for (size_t i = j + 1; i < n; ++i) {
      double* row_i = a.data() + i * n;
      double sum = row_i[j];
      for (size_t k = 0; k < j; ++k) sum -= row_i[k] * row_j[k];
      row_i[j] = sum / row_j[j];
    }
  }
  return true;
}

}  // namespace trafo
