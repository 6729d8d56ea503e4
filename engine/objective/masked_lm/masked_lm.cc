#include "engine/objective/masked_lm/masked_lm.h"

#include "engine/objective/registry.h"

namespace trafo {

void MaskedLm::check(const Model& model) const {
  require(model.spec().head.kind == EncoderHead::masked_lm, ErrorCode::invalid_argument,
          "masked-lm", "the model is no encoder with the head masked-lm");
}

std::unique_ptr<Objective> make_masked_lm(const ObjectiveOptions&,
                                          const std::shared_ptr<const FrozenModel>&) {
  return std::make_unique<MaskedLm>();
}

}  // namespace trafo
