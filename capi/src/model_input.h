// Text or token ids for a model, and what is recorded of it.
#pragma once

#include <optional>

#include "capi/src/model_handles.h"
#include "capi/src/text_handles.h"

namespace trafo::capi {

enum class Input { text, ids };

// Text needs the tokenizer, ids do not.
inline std::optional<Tokenizer> vocabulary_for(const Call& call, const Model& model,
                                               const trafo_tokenizer* tokenizer, Input input) {
  if (input == Input::text) call.handle(tokenizer, "tokenizer");
  return optional_vocabulary_of(call, model, tokenizer);
}

// Nothing is recorded of a model with a trainer, which computes gradients itself, or for
// inference, whose weights stay as they are.
inline void record_if_trainable(const ModelObject& model, bool recorded,
                                std::optional<NoGrad>& no_grad) {
  if (!recorded || model.for_inference || model.model.use_count() > 1)
    no_grad.emplace(*model.context);
}

}  // namespace trafo::capi
