// Checks of a serialized SentencePiece model before the library sees it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/core/limits.h"

namespace trafo {

// Numbers of the file format.
enum class SpmKind : uint8_t { unigram = 1, bpe = 2, word = 3, character = 4 };
enum class SpmPiece : uint8_t {
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,
  unused = 5,
  byte = 6
};

struct SpmSummary {
  SpmKind kind = SpmKind::unigram;
  std::vector<SpmPiece> pieces;  // by id
};

// Walks the whole message: wire format, piece texts and scores, and the normalizer's compiled
// character map, whose trie the library follows without bounds checks. Throws CORRUPT_FILE with
// `name` in the message.
SpmSummary check_spm_model(std::string_view serialized, std::string_view name);

}  // namespace trafo
