// How BLEU cuts a line into words: the tokenizers of sacreBLEU.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/metrics/metric_enums.generated.h"

namespace trafo {

// Subwords of a line as text, as the SentencePiece library gives them.
using SubwordFunction = std::function<std::vector<std::string>(std::string_view)>;

// The line with spaces between its words, and white space at its end left out. `subwords` is used
// by BleuTokenizer::flores200 alone, which needs it.
std::string separate_words(std::string_view line, BleuTokenizer tokenizer,
                           const SubwordFunction& subwords);

// The parts of a line between white space.
std::vector<std::string> split_words(std::string_view line);

}  // namespace trafo
