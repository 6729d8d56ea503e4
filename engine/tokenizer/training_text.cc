#include "engine/tokenizer/training_text.h"

#include <algorithm>
#include <string>

#include "engine/core/limits.h"
#include "engine/core/utf8.h"

namespace trafo {
namespace {

constexpr char32_t kSpace = U' ', kEscapedSpace = 0x2581;
constexpr size_t kCodePoints = 0x110000;
// How the special tokens and the byte tokens begin.
constexpr std::string_view kSpecial[] = {"<unk>", "<s>", "</s>", "<pad>", "<0x"};

bool has_special_token(std::string_view normalized) {
  return normalized.find('<') != std::string_view::npos &&
         std::any_of(std::begin(kSpecial), std::end(kSpecial), [&](std::string_view special) {
           return normalized.find(special) != std::string_view::npos;
         });
}

}  // namespace

TrainingText examine_training_text(std::span<const std::string_view> sentences,
                                   const CharacterMap& map) {
  TrainingText text;
  std::vector<uint64_t> counts(kCodePoints, 0);
  std::string normalized;
  for (const std::string_view sentence : sentences) {
    if (sentence.size() > limits::kTrainingSentenceBytes) continue;
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
    if (!has_text) continue;
    text.sentences.push_back(sentence);
    text.characters += 2;  // the dummy prefix and the boundary
    text.bytes += normalized.size() + 3;
    text.has_special_token |= has_special_token(normalized);
  }
  counts[kEscapedSpace] += counts[kSpace] + text.sentences.size();
  text.most_frequent = *std::max_element(counts.begin(), counts.end());
  return text;
}

}  // namespace trafo
