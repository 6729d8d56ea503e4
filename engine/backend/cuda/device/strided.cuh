// An index space of several strided operands: simplified on the host, walked on the device.
#pragma once

#include <array>
#include <cstdint>

#include "engine/core/shape.h"

namespace trafo::cuda {

template <int kOperands>
struct StridedLayout {
  int rank;  // at least 1
  int64_t count;
  int64_t shape[kMaxRank];
  int64_t strides[kOperands][kMaxRank];  // in elements

  int64_t width() const { return shape[rank - 1]; }
  int64_t step(int operand) const { return strides[operand][rank - 1]; }
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

// Where element i of the index space lies in each operand. Index: uint32_t if the count allows it,
// since divisions of 64 bits are slow.
template <class Index, int kOperands>
__device__ __forceinline__ void locate(const StridedLayout<kOperands>& layout, Index i,
                                       int64_t (&at)[kOperands]) {
#pragma unroll
  for (int k = 0; k < kOperands; ++k) at[k] = 0;
  for (int d = layout.rank - 1; d > 0; --d) {
    const Index size = static_cast<Index>(layout.shape[d]), rest = i / size;
    const int64_t index = static_cast<int64_t>(i - rest * size);
#pragma unroll
    for (int k = 0; k < kOperands; ++k) at[k] += index * layout.strides[k][d];
    i = rest;
  }
#pragma unroll
  for (int k = 0; k < kOperands; ++k) at[k] += static_cast<int64_t>(i) * layout.strides[k][0];
}

}  // namespace trafo::cuda
