// Maps of matrices for the copy engine of compute capability 9.0.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace trafo::cuda {

// Whether the map of a bfloat16 matrix could be made: heads * head_dim columns of `rows` rows,
// brought `box_rows` rows of 64 columns of one head at a time, the 16-byte pieces of 128 swizzled.
// Columns after the head's and rows after the last arrive as zeros. x, stride and head_dim: whole
// pieces of 16 bytes.
bool make_tensor_map(CUtensorMap& map, const void* x, int64_t stride, int64_t rows, int64_t heads,
                     int64_t head_dim, int box_rows);

}  // namespace trafo::cuda
