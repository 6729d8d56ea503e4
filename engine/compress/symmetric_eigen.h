// The eigenvalues and eigenvectors of a real symmetric matrix, in float64.
#pragma once

#include <cstddef>
#include <vector>

namespace trafo {

struct SymmetricEigen {
  std::vector<double> values;   // [n], descending
  std::vector<double> vectors;  // [n, n]: row i is the unit vector of values[i]
};

// a [n, n]; its lower triangle is read. Householder reflections make it tridiagonal, and implicit
// shifted QL iterations diagonal (Golub & Van Loan, Matrix Computations, 8.3). The absolute errors
// are of the order of the rounding of the largest eigenvalue. NON_FINITE: the iterations do not
// end, as with elements that are not finite.
SymmetricEigen symmetric_eigen(std::vector<double> a, size_t n);

}  // namespace trafo
