// Cross-entropy of labels mixed with the divergence from a teacher: word-level distillation (Hinton
// et al., arXiv 1503.02531; Kim and Rush, arXiv 1606.07947). With the logits x [T, V], the
// teacher's logits y [T, V], a share a and a temperature h:
//   p = softmax(x_t / h), q = softmax(y_t / h)
//   loss_t = (1 - a) c_t + a h^2 w_t sum_v q[v] (log q[v] - log p[v])
// dx = (1 - a) dc_t + g w_t a h (p - q) c_t is the loss of cross_entropy.h, with its label
// smoothing, and w_t the weight of the row. The gradient equals the gradient of Hinton's
// cross-entropy against q; the divergence lacks the entropy of q, which is constant, and is 0 where
// both agree. Rows with an ignored label count for nothing. A class that the teacher gives no
// probability, as for a logit of -infinity, counts for nothing in the divergence. The teacher gets
// no gradient.
//
// Saved for backward: the logits of both and kDistillationStats numbers a row: the largest logit,
// the logs of the sums of e^(x - largest) and e^((x - largest) / h), and the largest logit of the
// teacher with the log of its second sum.
#pragma once

#include "engine/ops/cross_entropy/cross_entropy.h"

namespace trafo {

inline constexpr int64_t kDistillationStats = 5;

struct DistillationForwardParams {
  DType dtype;
  double share, temperature;  // 0 < share <= 1
  double label_smoothing;
  int32_t ignore_label;
  int64_t rows, classes;
  int64_t stride;  // elements from a row of logits, teacher or dlogits to the next
  const void* logits;
  const void* teacher;  // [rows, classes]
  const int32_t* labels;
  const void* weights;  // [rows], stat_dtype(dtype) as everything below, or null
  void* loss;           // [rows], weighted; 0 where ignored
  void* nll;            // [rows], weighted, of the labels alone; 0 where ignored
  void* stats;          // [rows, kDistillationStats]; null: not wanted
  // The gradient at once; see CrossEntropyForwardParams.
  double dloss;
  void* dlogits;  // [rows, classes], may be the same memory as logits; null: not wanted
};

struct DistillationBackwardParams {
  DType dtype;
  double share, temperature;
  double label_smoothing;
  int32_t ignore_label;
  int64_t rows, classes;
  bool accumulate;
  const void* logits;
  const void* teacher;
  const int32_t* labels;
  const void* weights;
  const void* stats;
  const void* dloss;  // stat_dtype(dtype): one element, or [rows] when per_row
  bool per_row;
  double scale;  // times dloss
  void* dlogits;
};

namespace ops {

struct DistillationOptions {
  CrossEntropyOptions loss = {};  // without class weights: UNSUPPORTED
  double share = 0.5;             // a: 0 to 1; 0 does not read the teacher
  double temperature = 1;         // h: above 0
};

// teacher_logits [T, V], of the dtype of the logits. Labels, reductions and errors as of
// cross_entropy; nll belongs to the labels.
CrossEntropyOutput distillation(Context& context, const Tensor& logits,
                                const Tensor& teacher_logits, const Tensor& labels,
                                const DistillationOptions& options = {});
CrossEntropyOutput distillation_reference(Context& context, const Tensor& logits,
                                          const Tensor& teacher_logits, const Tensor& labels,
                                          const DistillationOptions& options);

// Throws unless share and temperature are in range, with `op` as the origin.
void check_mixture(const char* op, double share, double temperature);

}  // namespace ops
}  // namespace trafo
