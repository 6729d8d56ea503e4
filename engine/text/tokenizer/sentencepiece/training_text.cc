#include "engine/text/tokenizer/sentencepiece/training_text.h"

#include <algorithm>
#include <string>

#include "engine/core/strings/utf8.h"
#include "engine/text/tokenizer/training_pieces.h"

namespace trafo {
namespace {

constexpr char32_t kSpace = U' ', kEscapedSpace = 0x2581;
constexpr size_t kCodePoints = 0x110000;
// How the special tokens and the byte tokens begin.
constexpr std::string_view kSpecial[] = {"<unk>", "<s>", "</s>", "<pad>", "<0x"};

constexpr std::string_view kNonJoiner = "\u200c";

// Letters and marks of Arabic, Syriac, the scripts of South Asia, Burmese, Khmer and Mongolian, and
// the presentation forms of Arabic.
bool is_joining(char32_t character) {
  return (character >= 0x0600 && character <= 0x0dff) ||
         (character >= 0x1000 && character <= 0x109f) ||
         (character >= 0x1780 && character <= 0x18af) ||
         (character >= 0xfb50 && character <= 0xfdff) ||
         (character >= 0xfe70 && character <= 0xfefc);
}

// Whether the non-joiner at `place` has such a character on both sides.
bool joins_letters(std::string_view sentence, size_t place) {
  size_t before = place, after = place + kNonJoiner.size();
  while (before > 0 && (sentence[--before] & 0xc0) == 0x80) {
  }
  return place > 0 && after < sentence.size() && is_joining(next_code_point(sentence, before)) &&
         is_joining(next_code_point(sentence, after));
}

bool has_special_token(std::string_view normalized) {
  return normalized.find('<') != std::string_view::npos &&
         std::any_of(std::begin(kSpecial), std::end(kSpecial), [&](std::string_view special) {
           return normalized.find(special) != std::string_view::npos;
         });
}

}  // namespace

bool uses_non_joiner(std::span<const std::string_view> sentences) {
  constexpr size_t kEvery = 1000;
  size_t users = 0;
  for (const std::string_view sentence : sentences)
    for (size_t found = sentence.find(kNonJoiner); found != std::string_view::npos;
         found = sentence.find(kNonJoiner, found + 1))
      if (joins_letters(sentence, found)) {
        ++users;
        break;
      }
  return users > 0 && users >= sentences.size() / kEvery;
}

TrainingText examine_training_text(std::span<const std::string_view> sentences,
                                   const CharacterMap& map,
                                   std::span<const std::string> user_symbols) {
  TrainingText text;
  std::vector<uint64_t> counts(kCodePoints, 0);
  std::string normalized;
  const auto examine = [&](std::string_view sentence) {
    normalized.clear();
    for (size_t position = 0; position < sentence.size();)
      normalized += map.next(sentence, position);
    // The library takes spaces away at both ends, also those that are written as their escape.
    bool has_text = false;
    for (size_t position = 0; position < normalized.size(); ++text.characters) {
      const char32_t character = next_code_point(normalized, position);
      ++counts[character];
      has_text |= character != kSpace && character != kEscapedSpace;
      text.bytes += character == kSpace ? 2 : 0;
    }
    if (!has_text) return;
    text.sentences.push_back(sentence);
    text.characters += 2;  // the dummy prefix and the boundary
    text.bytes += normalized.size() + 3;
    text.has_special_token |= has_special_token(normalized);
    for (const std::string& symbol : user_symbols)
      text.has_special_token |= sentence.find(symbol) != std::string_view::npos;
  };
  for (const std::string_view sentence : sentences) for_each_training_piece(sentence, examine);
  counts[kEscapedSpace] += counts[kSpace] + text.sentences.size();
  text.most_frequent = *std::max_element(counts.begin(), counts.end());
  return text;
}

}  // namespace trafo
