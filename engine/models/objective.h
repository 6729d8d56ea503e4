// The function that training minimises.
//
// An objective is in this folder because two folders above need it: training differentiates it,
// validation and the scorer of decode/ measure with it, and decode/ may not include train/.
#pragma once

#include "engine/models/model.h"
#include "engine/ops/cross_entropy/cross_entropy.h"

namespace trafo {

class Objective {
 public:
  virtual ~Objective() = default;

  // Runs the model forward over `batch` and returns the loss summed over its labels, times `scale`
  // (1 / batch.label_count gives the mean). Both results are [1], stat_dtype of the model; `nll` is
  // the negative log-likelihood of the labels, which is reported and never differentiated.
  //
  // With dropout.training the gradients of the output projection are computed during this call.
  // backward() must follow, from the loss alone and with an upstream gradient of one.
  virtual ops::CrossEntropyOutput loss(Context& context, const Model& model, const Batch& batch,
                                       const DropoutPass& dropout, double scale = 1) const = 0;
};

// How much a student learns from its teacher, Model::teacher() (ops/distillation).
struct Distillation {
  double share = 0;  // of the loss: 0 to 1; 0 runs no teacher
  double temperature = 1;
};

// Cross-entropy of the labels, with part of the probability mass of every label spread over the
// vocabulary (Szegedy et al., arXiv 1512.00567). In training (dropout.training), the loss of a
// model with a teacher is mixed with the divergence from it. The teacher runs without dropout and
// is not recorded.
class LabelSmoothedCrossEntropy final : public Objective {
 public:
  // 0 <= label_smoothing < 1; 0 is plain cross-entropy. Other values fail in loss().
  explicit LabelSmoothedCrossEntropy(double label_smoothing, const Distillation& distillation = {})
      : label_smoothing_(label_smoothing), distillation_(distillation) {}

  ops::CrossEntropyOutput loss(Context& context, const Model& model, const Batch& batch,
                               const DropoutPass& dropout, double scale = 1) const override;

 private:
  double label_smoothing_;
  Distillation distillation_;
};

// The negative log-likelihood of each label of `batch` without dropout and weights: [Tt],
// stat_dtype of the model, 0 where the label is `ignore_label`. All logits [Tt, V] are held at
// once.
Tensor label_nll(Context& context, const Model& model, const Batch& batch, int32_t ignore_label);

}  // namespace trafo
