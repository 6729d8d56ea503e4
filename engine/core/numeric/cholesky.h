// The Cholesky factorization of a symmetric matrix, in float64.
#pragma once

#include <cstddef>
#include <vector>

namespace trafo {

// a [n, n]: in place, the lower triangle of L with A = L L^T; what is above it stays. False: A is
// not positive definite, and `a` is of no use.
[[nodiscard]] bool factorize_cholesky(std::vector<double>& a, size_t n);

}  // namespace trafo
