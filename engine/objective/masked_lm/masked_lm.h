// Cross-entropy of masked tokens (Devlin et al., arXiv 1810.04805, section 3.1). The batches of an
// encoder with the head masked-lm have masked tokens (data/token_masking.h), whose weights are 1.
#pragma once

#include "engine/objective/cross_entropy/cross_entropy.h"

namespace trafo {

class MaskedLm final : public LabelSmoothedCrossEntropy {
 public:
  MaskedLm() : LabelSmoothedCrossEntropy(0) {}
  // INVALID_ARGUMENT: the model is no encoder with the head masked-lm.
  void check(const Model& model) const override;
};

}  // namespace trafo
