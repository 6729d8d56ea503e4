// Texts that spell a token out, such as "</s>". SentencePiece never takes such a text for the
// token. The `tokenizers` library finds every token of a unigram vocabulary in a text.
#pragma once

#include <optional>
#include <string>

#include "engine/core/strings/json.h"
#include "engine/formats/tokenizers/spm_subwords.h"

namespace trafo::interop {

// Steps that keep the library from finding special tokens and byte tokens in a text, and change no
// other id: replacements at the end of the normalizer, and the pre-tokenizer.
struct SpelledTokens {
  Json::List normalizers;
  Json pre_tokenizer = nullptr;
};
// None if there are no such steps: a token is one character, or every place inside it is inside
// subwords.
std::optional<SpelledTokens> keep_spelled(const SpmModel& spm);

// A regular expression that matches this text alone.
std::string pattern_of(std::string_view text);

}  // namespace trafo::interop
