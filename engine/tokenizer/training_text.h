// A look at the text that a tokenizer is to be trained on, before SentencePiece sees it. The
// library ends the process where it does not expect what normalisation leaves of a text.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine/tokenizer/character_map.h"

namespace trafo {

struct TrainingText {
  // Without lines of which normalisation leaves nothing: spaces of all kinds and control
  // characters.
  std::vector<std::string_view> sentences;
  // Of the normal forms that take part, each with a boundary.
  uint64_t bytes = 0, characters = 0;
  uint64_t most_frequent = 0;      // how often the most frequent character occurs
  bool has_special_token = false;  // "<s>" and the like, written out in a sentence
};

TrainingText examine_training_text(std::span<const std::string_view> sentences,
                                   const CharacterMap& map);

}  // namespace trafo
