// Cross-entropy of the labels that the head of an encoder gives to texts or to their tokens, as
// BertForSequenceClassification and BertForTokenClassification have it.
#pragma once

#include "engine/objective/objective.h"

namespace trafo {

class Classification final : public Objective {
 public:
  ObjectiveOutput loss(Context& context, const Model& model, const Batch& batch,
                       const DropoutPass& dropout, double scale = 1) const override;
  // accuracy: the share of labels that have the highest logit.
  std::span<const char* const> metrics() const override;
  // INVALID_ARGUMENT: the model is no encoder with a head for labels.
  void check(const Model& model) const override;
};

}  // namespace trafo
