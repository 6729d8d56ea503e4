// The kernels of optimizers over flat workspaces: global norm, the update by the rule of an
// optimizer (NAME/NAME_rule.h has its formula), and the EMA of the parameters.
#pragma once

#include "engine/core/generated/option_enums.h"
#include "engine/optim/generated/rules.inc"
#include "engine/runtime/context.h"

namespace trafo {

// out[0] (double) = sum of x[i]^2 in double over a fixed partition; NaN or Inf if any element is.
struct SumOfSquaresParams {
  DType dtype;
  int64_t count;
  const void* x;
  double* out;
};

// out[i] (double) = sum of the squares of elements [kSquaresElements i, kSquaresElements (i + 1)):
// the partial sums that sum_of_squares and clipped_update add up.
inline constexpr int64_t kSquaresElements = 32768;
struct SquarePartialsParams {
  DType dtype;
  int64_t count;
  const void* x;
  double* out;
};

// x[i] = 0 where param[i] is zero and prunable[i / kGroupElements] is not. x has the dtype of the
// parameters or, with `codes`, one byte an element (8-bit moments).
struct ZeroPrunedParams {
  DType dtype;
  int64_t count;
  const void* param;
  const uint8_t* prunable;  // in the memory of the device
  void* x;
  bool codes;
};

// The weight of the parameters of update `step` (1 for the first) in their EMA: ema += weight
// (parameters - ema). As in Marian's --exponential-smoothing it is larger in the beginning, when an
// average over 1 / alpha updates would mostly hold initial weights: max(alpha, 1 - (n + 1) / (n +
// 10)), n updates after the one that the average begins with, here the first.
constexpr double ema_weight(double alpha, int64_t step) {
  const double early = 9.0 / static_cast<double>(step + 8);
  return alpha > early ? alpha : early;
}

// Factors of a parameter group for the learning rate and the weight decay of an update.
struct UpdateFactors {
  double learning_rate = 1;
  double weight_decay = 1;
  int64_t whole_matrix = 0;  // 1: elements of a matrix that Optimizer::finish() changes
  bool operator==(const UpdateFactors&) const = default;
};

// Elements that share a group index. Parameters start at multiples of it in a flat workspace.
inline constexpr int64_t kGroupElements = 16;

// The rates of an update for elements of one group: `lr` and `decay` of the formulas.
struct GroupRates {
  double learning_rate, weight_decay;
};

constexpr GroupRates group_rates(double learning_rate, double weight_decay,
                                 const UpdateFactors& factors) {
  return {learning_rate * factors.learning_rate, weight_decay * factors.weight_decay};
}

// The constants of a rule: the member with the name of the optimizer. In the formulas of the rules,
// p is a parameter and g = grad_scale * grad.
union UpdateRules {
#define TRAFO_OPTIMIZER(name, Name, ...) Name##Rule name;
#include "engine/optim/generated/optimizers.def"
#undef TRAFO_OPTIMIZER
};

// Steps that follow the rule of every optimizer, in the same pass over the parameters.
struct PostUpdate {
  // Null, or bfloat16 copies of float32 parameters: each new parameter, rounded to nearest even.
  void* param_bf16;
  // Null, or the EMA of the parameters, of dtype, [count], with weight ema_weight(ema_alpha, step).
  void* ema;
  double ema_alpha;
};

// States of an optimizer, at most.
inline constexpr int kMaxStates = 4;

// The parameters, their optimizer states and the constants of every update.
struct UpdateState {
  DType dtype;
  int64_t count;
  // The number of the first element in a workspace of which these are a part: a multiple of
  // state_code::kBlock. It decides how 8-bit states are rounded.
  int64_t first;
  void* param;
  void* grad;  // written for elements of whole matrices alone
  double weight_decay;
  // Null: every factor is 1. Else elements [16 i, 16 i + 16) have factors[group_of[i]]; both arrays
  // are in the memory of the device.
  const uint8_t* group_of;
  const UpdateFactors* factors;
  int32_t groups;  // factors in the array, at most 256
  PostUpdate post;
  // In the order of Optimizer::states(), at the first element; null after the last one.
  void* states[kMaxStates];
  OptimizerKind kind;
  UpdateRules rules;
};

struct UpdateParams {
  UpdateState state;
  double learning_rate;
  double grad_scale;  // clipping and averaging
  int64_t step;       // 1 for the first update
};

// The result of an update, and the count of updates, in device memory.
struct UpdateRecord {
  int64_t updates;  // applied so far
  // Of the newest update, applied or not:
  double loss, nll, norm, learning_rate;
  int64_t applied;  // 0: loss or norm was not finite, nothing has changed
};

// Learning rates of updates first, first + 1, ..., in device memory.
struct LearningRates {
  static constexpr int64_t kCount = 1024;
  int64_t first;
  double rates[kCount];
};

// A whole update without the host: norm of the gradient, clipping (Pascanu et al., arXiv
// 1211.5063), the rule of `state` with the step and the learning rate of update record->updates
// + 1. The update is skipped if loss or norm is not finite. It may be made in several calls, each
// with its own elements. Other kernels may not run between them.
struct ClippedUpdateParams {
  UpdateState state;
  double max_norm;   // 0: no clipping
  const void* loss;  // [1] of dtype, and the same for nll
  const void* nll;
  const LearningRates* rates;  // covers the update
  // Null, or the partial sums of squares of a whole gradient, of which `state` has a part. The norm
  // is then the root of their sum.
  const double* partials;
  int64_t partial_count;
  UpdateRecord* record;
  // The call continues the update of the call before, as that one has decided. With `partials`.
  bool continues = false;
};

// The row blocks of which a FactoredUpdate adds the sums: they depend on the shape alone.
struct FactoredBlocks {
  int64_t rows, count;  // rows of a block, the last one may have fewer
};
constexpr FactoredBlocks factored_blocks(int64_t rows, int64_t columns) {
  constexpr int64_t kMost = 64;
  int64_t blocks = rows * columns / kSquaresElements;
  blocks = blocks > kMost ? kMost : blocks;
  blocks = blocks > rows ? rows : blocks < 1 ? 1 : blocks;
  const int64_t each = (rows + blocks - 1) / blocks;
  return {each, (rows + each - 1) / each};
}

// Doubles of FactoredUpdateParams::buffer for a parameter.
constexpr int64_t factored_buffer(int64_t rows, int64_t columns) {
  const int64_t blocks = factored_blocks(rows, columns).count;
  const int64_t square_blocks = (rows * columns + kSquaresElements - 1) / kSquaresElements;
  return blocks * columns + square_blocks + rows + columns + 8;
}

// Adafactor's update of a parameter [rows, columns] (adafactor/adafactor_rule.h), and the steps of
// PostUpdate. Nothing changes if the update was skipped. All tensors have the dtype of `state`.
struct FactoredUpdateParams {
  UpdateState state;  // of `count` elements of the parameter, which change
  int64_t first;      // elements of the parameter before them
  int64_t rows, columns;
  const void* parameter;       // [rows, columns], of which `state` has a part
  const void* gradient;        // the same, scaled
  void* row_moments;           // [rows]
  void* column_moments;        // [columns]
  double* buffer;              // factored_buffer()
  const UpdateRecord* record;  // null: the next two instead
  double learning_rate;
  int64_t step;
};

// The second half of an update of whole matrices, for elements of one of them, and so of one group:
// p = (1 - lr decay) p - lr scale direction, and the steps of PostUpdate. Nothing changes if the
// update was skipped. The rule of `state`, its states and its gradient are not read.
struct ApplyDirectionParams {
  UpdateState state;
  const void* direction;  // [count] of dtype
  double scale;
  const UpdateRecord* record;  // null: the next two instead
  double learning_rate;
  int64_t step;
};

}  // namespace trafo
