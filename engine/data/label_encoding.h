// Labels of texts and of their words, as an encoder learns them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer/tokenizer.h"

namespace trafo {

// The labels of a model and what they are of. No names: the model has no labels.
struct LabelNames {
  std::vector<std::string> names = {};
  bool of_tokens = false;  // a label for each word, or one for the text

  bool empty() const { return names.empty(); }
  // The number of a label. INVALID_ARGUMENT lists the names.
  int32_t number(std::string_view name) const;
};

// A text in its frame with its labels.
struct LabelledText {
  std::vector<int32_t> source, target;
  std::vector<uint8_t> learned;  // of each label; empty: all
};

// `labels` is the name of one label or, of tokens, those of the words of the text with white space
// between them. Of a word in several tokens the first has the label. INVALID_ARGUMENT: an unknown
// label; another number of labels than words.
LabelledText encode_labelled(const Tokenizer& tokenizer, const VocabularyTokens& tokens,
                             const LabelNames& names, std::string_view text,
                             std::string_view labels);

// The ids of a text, and which of them begin a word.
void encode_words(const Tokenizer& tokenizer, std::string_view text, std::vector<int32_t>& ids,
                  std::vector<uint8_t>& begins);

}  // namespace trafo
