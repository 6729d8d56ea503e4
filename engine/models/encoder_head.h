// Another head for an encoder.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/models/model.h"

namespace trafo {

// An encoder with the weights of `model` and a head of this kind. `labels`: the names of the labels
// of a head for texts or tokens; empty for the others. Weights of the head that the model does not
// have are drawn from `seed`. The pooler of BertModel, and what masked-lm has, are kept where the
// new head is of that kind. INVALID_ARGUMENT: the model is no encoder, has an adapter or int8
// weights; labels without a head for them, or such a head without labels.
std::unique_ptr<Model> with_head(Context& context, const Model& model, EncoderHead head,
                                 std::vector<std::string> labels, uint64_t seed);

}  // namespace trafo
