// tokenizer.json of the `tokenizers` library, which transformers' AutoTokenizer reads.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "engine/core/strings/json.h"
#include "engine/text/tokenizer/tokenizer.h"

namespace trafo::interop {

// A unigram or BPE vocabulary, with or without byte tokens, in that form: the character map of the
// normalizer, spaces as U+2581, and the frame around a text, as the source of a decoder-lm has it.
// None if the library would give other ids: user-defined or unused subwords, subwords that no merge
// of two others gives, merges without an order, a character map that normalizer_steps() cannot
// write, special tokens that keep_spelled() cannot keep out of texts.
std::optional<Json> fast_tokenizer(const Tokenizer& tokenizer, const TextFrame& frame);

// The post-processor that puts tokens with these names around a text. `listed`: special_tokens.
Json frame_template(const TextFrame& frame, const std::string& begin, const std::string& end,
                    Json::Object listed);

// The sign of a space in subwords.
inline constexpr const char* kSpace = "\u2581";

// Spaces that are removed, and those that become one. SentencePiece takes U+2581 at the end of a
// text for a space.
inline constexpr const char* kEdgeSpaces = "\\A +|[ \\x{2581}]+\\z";
inline constexpr const char* kSeveralSpaces = " {2,}";

// The normalizers that give the normal form of every text, spaces not yet collapsed. None if the
// map is not made as SentencePiece makes its own: each entry of several characters is a letter and
// marks, every shorter part of it that begins with the letter is an entry as well, and the value is
// the composed form (NFC) of what its characters stand for. The library composes only to NFC, so a
// map that writes one character for others in another way cannot be told from these. CORRUPT_FILE
// with `name`: it is no map.
std::optional<Json::List> normalizer_steps(const std::string& character_map, std::string_view name);

}  // namespace trafo::interop
