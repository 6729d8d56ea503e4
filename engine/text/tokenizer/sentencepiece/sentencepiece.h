// Common parts of calls of the SentencePiece library.
#pragma once

#include <string_view>

namespace trafo {

inline constexpr std::string_view kTokenizerOrigin = "tokenizer";

// Before the first other call: the library logs to standard error unless it is told not to.
void silence_sentencepiece();

// INVALID_ARGUMENT, with `what` before the reason: the text is no UTF-8 or has a NUL byte.
void check_text(std::string_view text, std::string_view what);

}  // namespace trafo
