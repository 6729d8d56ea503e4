// Word-level distillation (ops/distillation): the loss of training is mixed with the divergence
// from a teacher.
#pragma once

#include <memory>

#include "engine/objective/cross_entropy/cross_entropy.h"
#include "engine/objective/frozen_model.h"

namespace trafo {

// How much a student learns from its teacher.
struct DistillationOptions {
  double share = 0;  // of the loss: 0 to 1; 0 runs no teacher
  double temperature = 1;
};

// In training (dropout.training) the teacher runs first, without dropout, and is not recorded.
// Without training it is the cross-entropy.
class Distillation final : public LabelSmoothedCrossEntropy {
 public:
  Distillation(double label_smoothing, const DistillationOptions& options,
               std::shared_ptr<const FrozenModel> teacher)
      : LabelSmoothedCrossEntropy(label_smoothing),
        options_(options),
        teacher_(std::move(teacher)) {}

  ObjectiveOutput loss(Context& context, const Model& model, const Batch& batch,
                       const DropoutPass& dropout, double scale = 1) const override;
  const Model* other_model() const override { return teacher_->model.get(); }

 private:
  DistillationOptions options_;
  std::shared_ptr<const FrozenModel> teacher_;
};

}  // namespace trafo
