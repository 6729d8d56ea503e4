// Rotary position embedding (Su et al., arXiv 2104.09864): pairs of a head's elements are turned by
// an angle that grows with the token's position, so that products of queries and keys depend on
// distances alone.
//
// The pairs are (i, i + head_dim / 2), as in Hugging Face's Llama; pair i of a token at position p
// turns by p theta^(-2i / head_dim). x [T, (heads + 2 kv_heads) head_dim], positions [T] int32.
// Without kv_heads all heads are turned. With them x is a packed product of queries, keys and
// values: queries and keys are turned, values are not, and every key and value head is repeated for
// the heads / kv_heads query heads that share it (grouped-query attention, Ainslie et al., arXiv
// 2305.13245): y [T, 3 heads head_dim]. Backward turns back and sums over the repeats.
#pragma once

#include "engine/runtime/context.h"

namespace trafo {

struct RotaryForwardParams {
  DType dtype;
  double theta;
  int64_t rows, head_dim;
  int64_t heads;     // turned, one copy each
  int64_t kv_heads;  // key heads, turned, and then as many value heads, not turned
  int64_t repeats;   // copies of each of those
  const int32_t* positions;
  const void* x;
  void* y;                     // may be x where nothing is repeated
  int64_t x_stride, y_stride;  // elements from row to row
};

struct RotaryBackwardParams {
  DType dtype;
  double theta;
  int64_t rows, head_dim;
  int64_t heads, kv_heads, repeats;
  bool accumulate;
  const int32_t* positions;
  const void* dy;
  void* dx;
  int64_t dy_stride, dx_stride;
};

namespace ops {

struct RotaryOptions {
  int64_t heads = 1;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;  // even
  double theta = 10000;
  // The result takes the memory of x, which nobody uses any more (neither does what made it, in its
  // backward). Only where nothing is repeated; otherwise, and for views, it is ignored.
  bool in_place = false;
};

Tensor rotary(Context& context, const Tensor& x, const Tensor& positions,
              const RotaryOptions& options);
Tensor rotary_reference(Context& context, const Tensor& x, const Tensor& positions,
                        const RotaryOptions& options);

}  // namespace ops
}  // namespace trafo
