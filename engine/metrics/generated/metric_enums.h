// Written by scripts/generate_options.py from schema/enums.toml: change that.
// clang-format off
#pragma once

#include "engine/core/enum_names.h"

namespace trafo {

// How BLEU cuts a line into words: tokenizers of sacreBLEU, with the same numbers. Values are
// part of the C ABI.
enum class BleuTokenizer : int32_t {
  // That of mteval-v13a: ASCII punctuation is set apart. For languages with spaces.
  mteval_13a = 0,
  // Words are separated by white space.
  none = 1,
  // Every Chinese character is a word, the rest as in 13a. For Chinese.
  zh = 2,
  // That of mteval-v14: punctuation and symbols of every script are set apart.
  intl = 3,
  // Every code point is a word. For Japanese, Thai and others without spaces.
  character = 4,
  // Subwords of a SentencePiece model that the user gives, usually the FLORES-200 model (spBLEU).
  flores200 = 5,
  // Japanese words as MeCab finds them with IPADIC. Both have to be installed.
  ja_mecab = 6,
};
template <>
struct EnumNames<BleuTokenizer> {
  static constexpr std::array<const char*, 7> names{"13a", "none", "zh", "intl", "char", "flores200", "ja-mecab"};
};

}  // namespace trafo
