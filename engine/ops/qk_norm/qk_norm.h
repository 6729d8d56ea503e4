// RMS norm of queries and keys inside a packed projection, as in Qwen3 (arXiv 2505.09388): scores
// of attention stay small however large the projections become.
//
// x [T, C] holds queries in its first columns, then keys; the other columns, values, are passed on.
// Queries are cut into groups of as many columns as query_gamma has elements, keys by key_gamma,
// and every group is normalised as by ops/rms_norm: a vector of a head's width normalises each
// head. Saved: x and the rstd of each group [T, groups of queries and keys] (double for f64, else
// float).
#pragma once

#include "engine/runtime/context.h"

namespace trafo {

// Neighbouring groups of columns that have one gamma.
struct NormedGroups {
  int64_t count, width;  // groups of a row, columns of a group
  const void* gamma;     // [width]
};

struct QkNormForwardParams {
  DType dtype;
  double epsilon;
  int64_t rows, columns;   // of x
  NormedGroups groups[2];  // queries, from column 0, and keys
  const void* x;
  void* y;
  void* rstd;  // [rows, groups], stat_dtype(dtype), or null
};

struct QkNormBackwardParams {
  DType dtype;
  int64_t rows, columns;
  NormedGroups groups[2];
  bool accumulate_dx;
  const void* x;
  const void* rstd;
  const void* dy;
  void* dx;         // or null
  void* dgamma[2];  // [width], stat_dtype(dtype), or null
  bool accumulate_dgamma[2];
};

namespace ops {

// y like x. The gammas' sizes must divide query_width and key_width.
Tensor qk_norm(Context& context, const Tensor& x, const Tensor& query_gamma,
               const Tensor& key_gamma, int64_t query_width, int64_t key_width, double epsilon);
Tensor qk_norm_reference(Context& context, const Tensor& x, const Tensor& query_gamma,
                         const Tensor& key_gamma, int64_t query_width, int64_t key_width,
                         double epsilon);

}  // namespace ops
}  // namespace trafo
