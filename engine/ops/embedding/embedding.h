// y[t] = dropout(scale * table[ids[t]] + position_table[positions[t]]).
//
// ids, positions [T] int32; table [V, C]; position_table [P, C] or undefined; y [T, C]. Backward
// reaches the table and, if it wants a gradient, the position table; rows are summed in token
// order, so it is deterministic. Ids and positions out of range are INVALID_ARGUMENT, naming the
// first.
#pragma once

#include "engine/core/philox.h"
#include "engine/runtime/context.h"

namespace trafo {

struct EmbeddingForwardParams {
  DType dtype;
  Dropout dropout;
  double scale;
  int64_t tokens, width;
  const int32_t* ids;
  const int32_t* positions;    // null without a position table
  const void* table;           // [vocabulary, width]
  const void* position_table;  // [max_positions, width] or null
  void* y;
};

// dtable[ids[t]] += scale * dy[t] * mask; dposition_table[positions[t]] += dy[t] * mask. Both
// buffers are complete: the kernel zeroes them first unless `accumulate_*`. Null where not wanted.
// `dtype` is that of dy; both buffers are stat_dtype(dtype).
struct EmbeddingBackwardParams {
  DType dtype;
  Dropout dropout;
  double scale;
  int64_t tokens, width, vocabulary, max_positions;
  bool accumulate_table, accumulate_positions;
  const int32_t* ids;
  const int32_t* positions;
  const void* dy;
  void* dtable;
  void* dposition_table;
};

namespace ops {

struct EmbeddingOptions {
  double scale = 1;
  Tensor positions;       // [T] int32, with position_table
  Tensor position_table;  // [P, C]: learned (wants a gradient) or fixed
  Dropout dropout;
  // The caller has checked ids and positions against the tables: an accelerator, which would have
  // to be waited for, does not read them back. Unchecked indices out of range are undefined
  // behaviour there.
  bool indices_validated = false;
};

Tensor embedding(Context& context, const Tensor& ids, const Tensor& table,
                 const EmbeddingOptions& options = {});

}  // namespace ops

// The sinusoidal table of Vaswani et al. (arXiv 1706.03762) 3.5 in the layout of Hugging Face
// MarianMT: sines in the first half of the width, cosines in the second, frequency
// 10000^(-2i/width). [positions, width].
Tensor sinusoidal_positions(Context& context, int64_t positions, int64_t width, DType dtype);

}  // namespace trafo
