// More tokens for a model and its vocabulary.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "engine/models/model.h"
#include "engine/text/tokenizer/tokenizer.h"

namespace trafo {

struct ModelWithTokens {
  std::unique_ptr<Model> model;
  Tokenizer tokenizer;
};

// The model with embeddings, output matrix and output bias for Tokenizer::with_tokens(tokens,
// special). The rows of a new token are copies of the rows of `like` or, if that is empty, the mean
// of the rows of the subwords that its text has in `tokenizer`, which are encode(text) without
// languages. All else is as it was, the groups of parameters too. INVALID_ARGUMENT: the vocabulary
// is not the model's, has no token `like`, or has no subwords for a text; the model has an adapter
// or int8 weights. Errors of Tokenizer::with_tokens() as well.
ModelWithTokens add_tokens(Context& context, const Model& model, const Tokenizer& tokenizer,
                           std::span<const std::string> tokens, bool special,
                           std::string_view like = {});

}  // namespace trafo
