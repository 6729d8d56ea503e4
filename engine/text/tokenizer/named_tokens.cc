#include "engine/text/tokenizer/named_tokens.h"

#include <algorithm>
#include <functional>

#include "engine/core/strings/utf8.h"
#include "engine/text/unicode/properties.h"

namespace trafo {
namespace {

bool is_white_space(char32_t character) {
  static const CodePointTable table(white_space_set());
  return table.has(character);
}

bool is_word_character(char32_t character) {
  static const CodePointTable table(rust_word_set());
  return table.has(character);
}

size_t last_character(std::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && (text[begin] & 0xc0) == 0x80) --begin;
  return begin;
}

// Whether a letter, a mark or a digit is beside the part of a text.
bool is_in_word(std::string_view text, size_t begin, size_t end) {
  const std::string_view before = text.substr(0, begin);
  size_t place = before.empty() ? 0 : last_character(before);
  if (!before.empty() && is_word_character(next_code_point(text, place))) return true;
  return end < text.size() && is_word_character(next_code_point(text, end));
}

size_t after_white_space(std::string_view text) {
  size_t end = 0;
  for (size_t next = 0; next < text.size(); end = next)
    if (!is_white_space(next_code_point(text, next))) break;
  return end;
}

size_t before_white_space(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    const size_t begin = last_character(text.substr(0, end));
    size_t next = begin;
    if (!is_white_space(next_code_point(text, next))) break;
    end = begin;
  }
  return end;
}

}  // namespace

NamedTokens::NamedTokens(std::vector<NamedToken> tokens) : tokens_(std::move(tokens)) {
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const std::string_view name = tokens_[i].name;
    if (name.empty() || tokens_[i].is_normalized) continue;
    by_name_.emplace(name, i);
    lengths_.push_back(name.size());
    first_bytes_.set(static_cast<unsigned char>(name[0]));
  }
  std::sort(lengths_.begin(), lengths_.end(), std::greater<>());
  lengths_.erase(std::unique(lengths_.begin(), lengths_.end()), lengths_.end());
}

const NamedToken* NamedTokens::find(std::string_view text, size_t place) const {
  if (!first_bytes_[static_cast<unsigned char>(text[place])]) return nullptr;
  for (const size_t length : lengths_) {
    if (length > text.size() - place) continue;
    const auto found = by_name_.find(text.substr(place, length));
    if (found != by_name_.end()) return &tokens_[found->second];
  }
  return nullptr;
}

std::vector<NamedTokens::Part> NamedTokens::split(std::string_view text) const {
  std::vector<Part> parts;
  size_t begin = 0;  // of the text after the last token
  for (size_t place = 0; place < text.size();) {
    const NamedToken* token = find(text, place);
    if (token == nullptr) {
      ++place;
      continue;
    }
    const bool is_part =
        token->is_single_word && is_in_word(text, place, place + token->name.size());
    if (token->stays_in_text || is_part) {
      place += token->name.size();
      continue;
    }
    // A token may begin in the white space that the token before it took.
    std::string_view before = text.substr(std::min(begin, place), place - std::min(begin, place));
    if (token->takes_space_before) before = before.substr(0, before_white_space(before));
    if (!before.empty()) parts.push_back({before, -1});
    parts.push_back({text.substr(place, token->name.size()), token->id});
    place += token->name.size();
    begin = place;
    if (token->takes_space_after) begin += after_white_space(text.substr(place));
  }
  if (begin < text.size()) parts.push_back({text.substr(begin), -1});
  return parts;
}

}  // namespace trafo
