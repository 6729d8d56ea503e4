// tokenizer.json of the `tokenizers` library, which transformers' AutoTokenizer reads.
#pragma once

#include <optional>

#include "engine/core/json.h"
#include "engine/tokenizer/tokenizer.h"

namespace trafo::interop {

// A unigram or BPE vocabulary, with or without byte tokens, in that form: the character map of the
// normalizer, spaces as U+2581, and </s> behind a text, as the source of a decoder-lm has it. None
// if the library would give other ids: user-defined or unused subwords, subwords that no merge of
// two others gives, merges without an order.
std::optional<Json> fast_tokenizer(const Tokenizer& tokenizer);

}  // namespace trafo::interop
