// Cross-entropy of logits [T, V] against labels [T] with label smoothing (Szegedy et al., arXiv
// 1512.00567, in the form of PyTorch: the smoothed mass is spread over all V classes), ignored
// labels and per-token weights:
//   loss_t = w_t ((1 - e) (lse_t - x_t[label]) + e (lse_t - mean_v x_t[v]))
//   dx = g w_t (softmax(x_t) - (1 - e) onehot - e / V)
// Saved for backward: the logits, and lse [T] in two parts whose sum is the log-sum: rounded, and
// what it has lost by that. Where the largest logit is kLargeLogit or more, so much would be lost
// that the parts are that logit and the log of the sum relative to it.
#pragma once

#include "engine/runtime/context.h"

namespace trafo {

// Values are part of the C ABI: never renumber, only append.
enum class Reduction : int32_t {
  none = 0,
  sum = 1,
  mean = 2
};  // mean: divided by the sum of weights not ignored

inline constexpr float kLargeLogit = 1024;

struct CrossEntropyForwardParams {
  DType dtype;
  double label_smoothing;
  int32_t ignore_label;
  int64_t rows, classes;
  int64_t stride;  // elements from a row of logits or dlogits to the next, at least `classes`
  const void* logits;
  const int32_t* labels;
  const void* weights;  // [rows], stat_dtype(dtype) as everything below, or null
  void* loss;           // [rows], weighted; 0 where ignored
  void* nll;            // [rows], weighted, without smoothing; 0 where ignored
  void* lse;            // [rows]
  void* lse_rest;       // [rows]: the log-sum less lse; null: not wanted
  // The gradient at once, for a caller that knows `dloss`, the gradient of every element of loss,
  // before the loss: backward without a second reading of the logits.
  double dloss;
  void* dlogits;  // [rows, classes], may be the same memory as logits; null: not wanted
  // dlogits before it is rounded to dtype, times dlogits_scale[1], in E5M2 (core/numeric/fp8.h):
  // float32 on the CPU and bfloat16 on CUDA, with a stride that is a multiple of 16 and less than
  // 16 elements more than `classes`. Both gradients then have zeros after a row. Null: not wanted.
  void* dlogits_fp8;  // bytes [rows, stride]
  const float* dlogits_scale;
};

// dlogits may be the same memory as logits.
struct CrossEntropyBackwardParams {
  DType dtype;
  double label_smoothing;
  int32_t ignore_label;
  int64_t rows, classes;
  bool accumulate;
  const void* logits;
  const int32_t* labels;
  const void* weights;
  const void* lse;
  const void* lse_rest;
  const void* dloss;  // stat_dtype(dtype), as weights and lse: one element, or [rows] when per_row
  bool per_row;
  double scale;  // times dloss
  void* dlogits;
};

namespace ops {

inline constexpr int32_t kIgnoreLabel = -100;

struct CrossEntropyOptions {
  double label_smoothing = 0;           // 0 <= e < 1
  int32_t ignore_label = kIgnoreLabel;  // labels equal to this count for nothing
  // [T], dtype of the logits (float32 for bfloat16), non-negative; undefined: all 1. Gets no
  // gradient
  Tensor weights = {};
  // [V], of the same dtype, non-negative; undefined: all 1. Weighs the terms of the loss by class,
  // as PyTorch does: a row counts w[label], and its smoothed mass of class v counts w[v]. Gets no
  // gradient.
  Tensor class_weights = {};
  Reduction reduction = Reduction::mean;
  double scale =
      1;  // times the reduced loss and nll, and so times the gradient; 1 for Reduction::none
  // The caller has checked labels and weights: an accelerator, which would have to be waited for,
  // does not read them back. Unchecked labels out of range are undefined behaviour there.
  bool labels_validated = false;
  double weight_sum =
      -1;  // over labels not ignored, for a mean of checked labels; negative: unknown
};

struct CrossEntropyOutput {
  Tensor loss;  // [1], or [T] for Reduction::none; float32 for bfloat16
  Tensor nll;   // the same without smoothing; never differentiated
};

// Labels outside 0 .. V-1 that are not ignored are INVALID_ARGUMENT. A mean over nothing is 0.
CrossEntropyOutput cross_entropy(Context& context, const Tensor& logits, const Tensor& labels,
                                 const CrossEntropyOptions& options = {});
// Of class probabilities instead of labels: loss_t = w_t sum_v c_v q_t[v] (lse_t - x_t[v]), where q
// is (1 - e) targets + e / V and c the class weights. targets [T, V], of the dtype of the logits;
// they may want a gradient. A mean is divided by the sum of w, which is T without weights, whatever
// the class weights (as in PyTorch). No label is ignored. -> [1], or [T] for Reduction::none;
// float32 for bfloat16. Stores several tensors of the size of the logits.
Tensor soft_cross_entropy(Context& context, const Tensor& logits, const Tensor& targets,
                          const CrossEntropyOptions& options = {});

CrossEntropyOutput cross_entropy_reference(Context& context, const Tensor& logits,
                                           const Tensor& labels,
                                           const CrossEntropyOptions& options);

}  // namespace ops
}  // namespace trafo
