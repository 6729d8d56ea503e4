// Properties of Unicode's characters, of the versions that unicode_data.h names.
#pragma once

#include <optional>
#include <string_view>

#include "engine/text/unicode/code_point_set.h"

namespace trafo {

// A general category ("Lu") or a group of them ("L"). None: there is no such category.
std::optional<CodePointSet> category_set(std::string_view name);
const CodePointSet& white_space_set();
// \w of the Oniguruma library, of which `tokenizers` makes patterns, and of Rust's regex crate.
const CodePointSet& word_set();
const CodePointSet& rust_word_set();
// Category P of Unicode 8, and ASCII's symbols.
const CodePointSet& old_punctuation_set();
// Categories Mn, and Cc, Cf and Co, of Unicode 8.
const CodePointSet& old_nonspacing_set();
const CodePointSet& old_other_set();

// Appends the lower case of a character, without regard to its neighbours.
void append_lower_case(char32_t character, std::u32string& text);

}  // namespace trafo
