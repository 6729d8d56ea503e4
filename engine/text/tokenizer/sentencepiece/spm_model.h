// Checks of a serialized SentencePiece model before the library sees it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/limits.h"
#include "engine/text/tokenizer/sentencepiece/character_map.h"

namespace trafo {

// Numbers of the file format.
enum class SpmKind : uint8_t { unigram = 1, bpe = 2, word = 3, character = 4 };
enum class SubwordType : uint8_t {
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,
  unused = 5,
  byte = 6
};

struct SpmSummary {
  SpmKind kind = SpmKind::unigram;
  std::vector<SubwordType> subwords;  // by id
  CharacterMap normalizer, denormalizer;
  bool has_self_test = false;
  bool dummy_prefix = true;    // writes a space in front of a text
  bool removes_spaces = true;  // at both ends of a text, and all but one of several
  // Of ours, see spm_field::kEnds; empty if the file has none.
  std::vector<std::string> ends;
  std::string start;
};

// Walks the whole message: wire format, subword texts and scores, and the character maps. The maps
// of the summary refer to `serialized`. Throws CORRUPT_FILE with `name` in the message.
SpmSummary check_spm_model(std::string_view serialized, std::string_view name);

// The compiled character map of a model's normalizer; empty if it has none.
std::string_view character_map_of(std::string_view serialized, std::string_view name);

// The model without its self-test. The library would run the self-test while it loads the model, on
// texts of any length.
std::string without_self_test(std::string_view serialized, std::string_view name);

// The model that writes no space in front of a text.
std::string without_dummy_prefix(std::string_view serialized);

}  // namespace trafo
