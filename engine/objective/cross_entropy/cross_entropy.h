// Cross-entropy of the labels, with part of the probability mass of every label spread over the
// vocabulary (Szegedy et al., arXiv 1512.00567).
#pragma once

#include "engine/objective/objective.h"
#include "engine/ops/linear_cross_entropy/linear_cross_entropy.h"

namespace trafo {

class LabelSmoothedCrossEntropy : public Objective {
 public:
  // 0 <= label_smoothing < 1; 0 is plain cross-entropy. Other values fail in loss().
  explicit LabelSmoothedCrossEntropy(double label_smoothing) : label_smoothing_(label_smoothing) {}

  ObjectiveOutput loss(Context& context, const Model& model, const Batch& batch,
                       const DropoutPass& dropout, double scale = 1) const override;
  // INVALID_ARGUMENT: an encoder, which has objectives of its own.
  void check(const Model& model) const override;

 protected:
  // With a mixture of the loss and the divergence from a teacher, if `options` has one.
  ObjectiveOutput loss(Context& context, const Model& model, const Batch& batch,
                       const DropoutPass& dropout, double scale,
                       ops::LinearCrossEntropyOptions options) const;

 private:
  double label_smoothing_;
};

}  // namespace trafo
