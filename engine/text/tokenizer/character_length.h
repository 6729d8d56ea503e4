// Characters among bytes that tokens spell.
#pragma once

#include <cstddef>
#include <string_view>

namespace trafo {

// The length of the character that begins at `at`; or, negated, of the ill-formed bytes there that
// one U+FFFD stands for; or 0: the text ends within a character that may still be right.
int character_length(std::string_view text, size_t at);

}  // namespace trafo
