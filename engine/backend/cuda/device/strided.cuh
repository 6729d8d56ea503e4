// Walks an index space of several strided operands on the device.
#pragma once

#include <cstdint>

#include "engine/core/strided_layout.h"

namespace trafo::cuda {

using trafo::strided_layout;
using trafo::StridedLayout;

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
