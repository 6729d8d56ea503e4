// Checks of a serialized SentencePiece model before the library sees it.
#pragma once

#include <string_view>

namespace trafo {

inline constexpr int kMaxVocabulary = 1 << 22;
inline constexpr int kMaxPieceBytes = 8 << 10;

// Walks the whole message: wire format, piece texts and scores, and the normalizer's compiled
// character map, whose trie the library follows without bounds checks. Throws CORRUPT_FILE with
// `name` in the message.
void check_spm_model(std::string_view serialized, std::string_view name);

}  // namespace trafo
