// Text without spaces between words, of which BLEU's usual tokenizers count whole phrases as words.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace trafo {

// Whether more than half of the characters belong to scripts that are written without spaces
// (Chinese, Japanese, Thai, Lao, Khmer, Burmese, Tibetan and others), and the words between the
// spaces of the line have more than 5 such characters on average. Chinese whose words somebody has
// set apart is thus no such line.
bool is_unspaced(std::string_view line);

// The number of such lines.
size_t count_unspaced(std::span<const std::string> lines);

}  // namespace trafo
