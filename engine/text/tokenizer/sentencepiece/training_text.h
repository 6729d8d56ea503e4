// A look at the text that a tokenizer is to be trained on, before SentencePiece sees it. The
// library ends the process where it does not expect what normalisation leaves of a text.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer/sentencepiece/character_map.h"

namespace trafo {

struct TrainingText {
  // Without lines of which normalisation leaves nothing: spaces of all kinds and control
  // characters.
  std::vector<std::string_view> sentences;
  // Of the normal forms that take part, each with a boundary.
  uint64_t bytes = 0, characters = 0;
  uint64_t most_frequent = 0;      // how often the most frequent character occurs
  bool has_special_token = false;  // "<s>" and the like or a user's, written out in a sentence
};

// Whether a language of the text writes words with U+200C: at least one sentence in a thousand has
// it between two letters of a script that joins or stacks letters, from Arabic to Khmer.
bool uses_non_joiner(std::span<const std::string_view> sentences);

TrainingText examine_training_text(std::span<const std::string_view> sentences,
                                   const CharacterMap& map,
                                   std::span<const std::string> user_symbols = {});

}  // namespace trafo
