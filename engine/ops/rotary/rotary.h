// Rotary position embedding (Su et al., arXiv 2104.09864): pairs of a head's elements are rotated
// by an angle that grows with the token's position, so that scores of queries and keys depend on
// distances alone.
//
// The pairs are (i, i + head_dim / 2), as in Hugging Face's Llama; pair i of a token at position p
// is rotated by p theta^(-2i / head_dim), or otherwise, see RotaryAngles. x [T, (heads + 2
// kv_heads) head_dim], positions [T] int32, result like x. Without kv_heads all heads are rotated.
// With them x is a packed projection of queries, keys and values: queries and keys are rotated,
// values are passed on. Backward rotates back.
#pragma once

#include "engine/core/generated/option_enums.h"
#include "engine/runtime/context.h"

namespace trafo {

// The angles by which the pairs of a head turn from one position to the next.
//
// A factor above 1 stretches the positions of a model to longer texts. With no original_positions
// it divides all angles (Chen et al., arXiv 2306.15595). Otherwise it divides the angles of the
// slow pairs: a pair that makes up to low_turns turns in original_positions is divided whole, one
// of high_turns or more is not changed, and between them the factor's share falls linearly.
// - llama3 (Grattafiori et al., arXiv 2407.21783): linearly with the turns.
// - yarn (Peng et al., arXiv 2309.00071): linearly with the number of the pair, between the whole
//   numbers around the pairs of high_turns and low_turns turns. Rotated vectors are multiplied by
//   `magnitude`. Constants and rounding are those of _compute_yarn_parameters in
//   modeling_rope_utils.py of transformers 5.23.
//
// query_growth multiplies queries of far positions by a factor (Ministral 3, from Llama 4).
struct RotaryAngles {
  double theta = 10000;
  double factor = 1;
  int64_t original_positions = 0;
  double low_turns = 1, high_turns = 4;  // low_turns is below high_turns
  RopeScaling scaling = RopeScaling::llama3;
  double magnitude = 1;
  double query_growth = 0;  // above 0: with original_positions

  double of_pair(int64_t pair, int64_t head_dim) const;  // radians
  // 1 + query_growth ln(1 + floor(position / original_positions)); 1 before position 0.
  double query_factor(int64_t position) const;
  friend bool operator==(const RotaryAngles&, const RotaryAngles&) = default;
};

// The share of an angle that is not divided rises from 0 at `low` to 1 at `high`: of the pair's
// turns in the original positions, or by_pair of its number times -1.
struct RotaryRamp {
  double low, high;
  bool by_pair;
};
RotaryRamp ramp_of(const RotaryAngles& angles, int64_t head_dim);

// Usual high_turns and low_turns of YaRN.
inline constexpr double kYarnFast = 32, kYarnSlow = 1;
// The usual magnitude of YaRN, and the one of a file with mscale.
double yarn_magnitude(double factor, double mscale = 1);

struct RotaryForwardParams {
  DType dtype;
  RotaryAngles angles;
  RotaryRamp ramp;  // ramp_of(angles, head_dim)
  int64_t rows, head_dim;
  int64_t heads;     // of queries, rotated
  int64_t kv_heads;  // key heads, rotated, and then as many value heads, which are not
  const int32_t* positions;
  const void* x;
  void* y;                     // may be x
  int64_t x_stride, y_stride;  // elements from row to row
};

struct RotaryBackwardParams {
  DType dtype;
  RotaryAngles angles;
  RotaryRamp ramp;
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
  int64_t heads = 1;  // of queries
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
