// How BLEU cuts a line into words: the tokenizers of sacreBLEU.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/metrics/generated/metric_enums.h"

namespace trafo {

// Subwords or words of a line as text, as the SentencePiece library or MeCab gives them.
using SubwordFunction = std::function<std::vector<std::string>(std::string_view)>;

// The line with spaces between its words, and white space at its end left out. `subwords` is used
// by BleuTokenizer::flores200 and ja_mecab alone, which need it.
std::string separate_words(std::string_view line, BleuTokenizer tokenizer,
                           const SubwordFunction& subwords);

// Japanese words as MeCab finds them with the dictionary IPADIC: BleuTokenizer::ja_mecab.
struct JapaneseWords {
  SubwordFunction words;  // for one thread at a time
  // Of MeCab and the dictionary, for the signature: "0.996-IPA", as sacreBLEU has it, or, with a
  // dictionary of another number of words, "0.996-IPA:392127".
  std::string version;
};

// Neither MeCab nor IPADIC is a part of this library: libmecab.so.2 is loaded here. The environment
// variable TRAFO_MECAB_DICTIONARY names the folder of the dictionary; the default is Debian's
// package. UNSUPPORTED, with what to install: there is no MeCab, no dictionary, or one in another
// encoding.
JapaneseWords load_japanese_words();

// The parts of a line between white space.
std::vector<std::string> split_words(std::string_view line);

}  // namespace trafo
