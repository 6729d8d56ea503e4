// Rotary position embedding (Su et al., arXiv 2104.09864): pairs of a head's elements are rotated
// by an angle that grows with the token's position, so that scores of queries and keys depend on
// distances alone.
//
// The pairs are (i, i + head_dim / 2), as in Hugging Face's Llama; pair i of a token at position p
// is rotated by p theta^(-2i / head_dim), or less, see RotaryAngles. x [T, (heads + 2 kv_heads)
// head_dim], positions [T] int32, result like x. Without kv_heads all heads are rotated. With them
// x is a packed projection of queries, keys and values: queries and keys are rotated, values are
// passed on. Backward rotates back.
#pragma once

#include "engine/runtime/context.h"

namespace trafo {

// The angles by which the pairs of a head turn from one position to the next.
//
// A factor above 1 stretches the positions of a model to longer texts. With no original_positions
// it divides all angles (Chen et al., arXiv 2306.15595). Otherwise it divides the angles of the
// slow pairs, as in Llama 3.1 (Grattafiori et al., arXiv 2407.21783): a pair that makes up to
// low_turns turns in original_positions is divided whole, one of high_turns or more is not changed,
// and between them the factor's share falls linearly with the turns.
struct RotaryAngles {
  double theta = 10000;
  double factor = 1;
  int64_t original_positions = 0;
  double low_turns = 1, high_turns = 4;  // low_turns is below high_turns

  double of_pair(int64_t pair, int64_t head_dim) const;  // radians
  friend bool operator==(const RotaryAngles&, const RotaryAngles&) = default;
};

struct RotaryForwardParams {
  DType dtype;
  RotaryAngles angles;
  int64_t rows, head_dim;
  int64_t heads;     // rotated
  int64_t kv_heads;  // key heads, rotated, and then as many value heads, which are not
  const int32_t* positions;
  const void* x;
  void* y;                     // may be x
  int64_t x_stride, y_stride;  // elements from row to row
};

struct RotaryBackwardParams {
  DType dtype;
  RotaryAngles angles;
  int64_t rows, head_dim;
  int64_t heads, kv_heads;
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
  RotaryAngles angles = {};
  // The result takes the memory of x. Only allowed if x is not read any more, not even by the
  // backward of the op that made it. Ignored for views.
  bool in_place = false;
};

Tensor rotary(Context& context, const Tensor& x, const Tensor& positions,
              const RotaryOptions& options);
Tensor rotary_reference(Context& context, const Tensor& x, const Tensor& positions,
                        const RotaryOptions& options);

}  // namespace ops
}  // namespace trafo
