// The optimizer's kernels over flat workspaces: global norm, AdamW (Loshchilov & Hutter, arXiv
// 1711.05101) and the exponential smoothing of what it makes.
#pragma once

#include "engine/runtime/context.h"

namespace trafo {

// out[0] (double) = sum of x[i]^2 in double over a fixed partition; NaN or Inf if any element is.
struct SumOfSquaresParams {
  DType dtype;
  int64_t count;
  const void* x;
  double* out;
};

// The share of the parameters of update `step` (1 for the first) in their running mean: mean +=
// share (parameters - mean). As in Marian's --exponential-smoothing it is larger in the beginning,
// when a mean over 1 / share updates would be one of initial weights: max(share, 1 - (n + 1) / (n +
// 10)), n updates after the one that the mean begins with, here the first.
constexpr double smoothing_share(double share, int64_t step) {
  const double early = 9.0 / static_cast<double>(step + 8);
  return share > early ? share : early;
}

// g = grad_scale * grad; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2;
// p -= lr * (mhat / (sqrt(vhat) + epsilon) + weight_decay p), mhat = m / (1 - b1^step), vhat = v /
// (1 - b2^step).
struct AdamWParams {
  DType dtype;
  int64_t count;
  double learning_rate, beta1, beta2, epsilon, weight_decay;
  double grad_scale;  // clipping and averaging
  int64_t step;       // 1 for the first update
  void* param;
  const void* grad;
  void* m;
  void* v;
  // Null, or bfloat16 copies of float32 parameters: each new parameter is also written here,
  // rounded to nearest even, in the same pass.
  void* param_bf16;
  // Null: m and v are of dtype, [count]. Else dtype is float32, m and v are the codes of
  // state_code.h, a byte an element of whole blocks, and these their scales, one a block. Every
  // update decodes them, and codes what it has made of them with `step` as the random numbers'.
  float* m_scale;
  float* v_scale;
  // Null, or the running mean of the parameters, of dtype, [count]: smoothing_share(smoothing,
  // step) of it become the new ones.
  void* mean;
  double smoothing;
};

// What the updates of a run carry along, in device memory.
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

// A whole update that the host has no part in: norm of the gradient, clipping (Pascanu et al.,
// arXiv 1211.5063), AdamW as above with the step and the learning rate of update
// record->updates + 1, unless loss or norm is not finite. One graph of work for every update.
struct ClippedAdamWParams {
  DType dtype;
  int64_t count;
  double beta1, beta2, epsilon, weight_decay;
  double max_norm;  // 0: any
  void* param;
  const void* grad;
  void* m;
  void* v;
  void* param_bf16;  // as above
  const void* loss;  // [1] of dtype, and the same for nll
  const void* nll;
  const LearningRates* rates;  // covers the update
  UpdateRecord* record;
  float* m_scale;  // as above
  float* v_scale;
  void* mean;
  double smoothing;
};

}  // namespace trafo
