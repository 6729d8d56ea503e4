// The truncated singular value decomposition of a matrix for given inputs; compress/factorize.h has
// the formulas.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace trafo {

class WhitenedSvd {
 public:
  struct Factors {
    std::vector<double> u;  // [rows, rank]
    std::vector<double> v;  // [rank, columns]
  };

  // w [rows, columns]; gram [columns, columns]: the mean of x x^T over the inputs. 1 % of the mean
  // of its diagonal is added to the diagonal. Where all inputs are zero, each counts the same.
  // NON_FINITE: an element that is not finite.
  WhitenedSvd(std::vector<double> w, std::vector<double> gram, int64_t rows, int64_t columns);

  // The squares of the singular values, descending: the energy that each component brings to the
  // output of the layer. As many as the smaller side.
  const std::vector<double>& energies() const { return energies_; }
  // rank: 1 to energies().size().
  Factors factors(int64_t rank) const;

 private:
  size_t rows_, columns_;
  std::vector<double> w_;
  std::vector<double> whitener_;  // L; only with more rows than columns
  std::vector<double> energies_;
  std::vector<double> vectors_;  // [energies, energies]: rows are U's columns, or V's
};

}  // namespace trafo
