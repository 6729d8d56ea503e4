// y[t] = dropout(scale * table[ids[t]] + position_table[positions[t]]).
//
// ids, positions [T] int32; table [V, C]; position_table [P, C] or undefined; y [T, C]. Backward
// reaches the table and, if it wants a gradient, the position table; rows are summed in token
// order, so it is deterministic. The row of a padding id gets no gradient. Ids and positions out of
// range are INVALID_ARGUMENT, naming the first.
#pragma once

#include "engine/core/numeric/philox.h"
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

// Tokens in the order of the entry that they pick, tokens of one entry in token order: entry[i] =
// indices[token[i]], which never decreases. 0 <= indices[t] < entries.
struct SortTokensParams {
  int64_t tokens, entries;
  const int32_t* indices;  // [tokens]
  int32_t* entry;          // [tokens]
  int32_t* token;          // [tokens]
};

// dtable[entry[i]] += scale * dy[token[i]] * mask, in the order of i. The gradient is complete: the
// kernel zeroes it first unless `accumulate`. `dtype` is the dtype of dy, dtable is
// stat_dtype(dtype).
struct EmbeddingBackwardParams {
  DType dtype;
  Dropout dropout;
  double scale;
  int64_t tokens, width, entries;
  bool accumulate;
  const int32_t* entry;  // of SortTokensParams
  const int32_t* token;
  const void* dy;
  void* dtable;  // [entries, width]
};

namespace ops {

struct EmbeddingOptions {
  double scale = 1;
  int64_t padding_id = -1;  // tokens with this id give the table no gradient; -1: none
  Tensor positions;         // [T] int32, with position_table
  Tensor position_table;    // [P, C]: learned (wants a gradient) or fixed
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
// As fairseq, M2M100 and NLLB-200 have them: the first row is of position 2, frequency
// 10000^(-i/(width/2 - 1)). width: even and at least 4.
Tensor fairseq_positions(Context& context, int64_t positions, int64_t width, DType dtype);

}  // namespace trafo
