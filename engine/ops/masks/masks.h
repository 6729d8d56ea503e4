// Row numbers and masks for reference implementations, made where they are used. They are constants
// to autodiff.
#pragma once

#include "engine/core/numeric/philox.h"
#include "engine/runtime/context.h"

namespace trafo {

// Sequences of unequal lengths in `sequences` * `length` rows: where row i of sequence b comes
// from, and where the rows go. A row after the end of its sequence repeats the last one of it.
struct PaddedRowsParams {
  int64_t sequences, length;  // no sequence is longer
  int64_t rows;               // that there are
  const int32_t* begin;       // [sequences]
  const int32_t* end;
  int32_t* from;  // [sequences * length]: 0 .. rows - 1
  int32_t* to;    // [rows], or null: the place of each row that lies in a sequence, others are left
};

// out[b, i, j] = 1 if query i of sequence b sees key j, else 0. Queries and keys are sequences as
// above, or all of one length where begin is null.
struct VisibleKeysParams {
  DType dtype;
  bool causal;  // key j is masked for query i when j > i + keys - queries
  // and when j <= i + keys - queries - window, without causal also when j >= i + keys - queries +
  // window; 0: no window
  int64_t window = 0;
  int64_t sequences, queries, keys;
  const int32_t* query_begin;
  const int32_t* query_end;
  const int32_t* key_begin;
  const int32_t* key_end;
  const int32_t* masked;  // [sequences, keys], or null: keys that are not 0 here are masked
  void* out;
};

// out[t, c] = 1 where c = label[t], else 0. Labels outside 0 .. classes - 1 and `ignore` have none.
struct OneHotParams {
  DType dtype;
  int64_t rows, classes;
  int32_t ignore;
  const int32_t* labels;
  void* out;  // [rows, classes]
};

namespace ops {

struct PaddedRows {
  Tensor from, to;  // as above, int32
};
// Rows on the device. to: only if the sequences do not overlap.
PaddedRows padded_rows(Context& context, const int32_t* begin, const int32_t* end,
                       int64_t sequences, int64_t length, int64_t rows, bool to);

Tensor visible_keys(Context& context, const VisibleKeysParams& without_out, const Shape& shape);

// labels [T] int32 -> [T, classes]
Tensor one_hot(Context& context, const Tensor& labels, int64_t classes, int32_t ignore,
               DType dtype);

// The mask by which dropout() multiplies a tensor of this shape, 0 and 1 / (1 - p).
Tensor dropout_mask(Context& context, const Shape& shape, DType dtype, const Dropout& dropout);

}  // namespace ops
}  // namespace trafo
