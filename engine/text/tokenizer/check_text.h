// Checks that all kinds of tokenizers share.
#pragma once

#include <string_view>

namespace trafo {

inline constexpr std::string_view kTokenizerOrigin = "tokenizer";

// INVALID_ARGUMENT, with `what` before the reason: the text is no UTF-8 or has a NUL byte.
void check_text(std::string_view text, std::string_view what);

}  // namespace trafo
