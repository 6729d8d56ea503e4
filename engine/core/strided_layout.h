// An index space that several strided operands share, in as few dimensions as their strides allow.
#pragma once

#include <array>
#include <cstdint>

#include "engine/core/shape.h"

namespace trafo {

template <int kOperands>
struct StridedLayout {
  int rank;  // at least 1
  int64_t count;
  int64_t shape[kMaxRank];
  int64_t strides[kOperands][kMaxRank];  // in elements

  int64_t width() const { return shape[rank - 1]; }
  int64_t step(int operand) const { return strides[operand][rank - 1]; }
  // True if the elements of the operand lie side by side, in the order of the index space.
  bool dense(int operand) const { return rank == 1 && (step(operand) == 1 || count <= 1); }
  // True if every row of the operand starts at a multiple of `elements` from the first.
  bool rows_aligned(int operand, int64_t elements) const {
    for (int i = 0; i + 1 < rank; ++i)
      if (strides[operand][i] % elements != 0) return false;
    return true;
  }
};

// Drops dimensions of size 1 and merges neighbours that are one progression for every operand.
template <int kOperands>
StridedLayout<kOperands> strided_layout(int rank, const int64_t* shape,
                                        const std::array<const int64_t*, kOperands>& strides) {
  StridedLayout<kOperands> out{};
  out.count = 1;
  for (int i = 0; i < rank; ++i) {
    out.count *= shape[i];
    if (shape[i] == 1) continue;
    const int last = out.rank - 1;
    bool merges = last >= 0;
    for (int k = 0; k < kOperands; ++k)
      merges = merges && out.strides[k][last] == strides[k][i] * shape[i];
    const int at = merges ? last : out.rank++;
    out.shape[at] = merges ? out.shape[at] * shape[i] : shape[i];
    for (int k = 0; k < kOperands; ++k) out.strides[k][at] = strides[k][i];
  }
  if (out.rank == 0) {
    out.rank = 1;
    out.shape[0] = 1;
    for (int k = 0; k < kOperands; ++k) out.strides[k][0] = 1;
  }
  return out;
}

}  // namespace trafo
