#include "engine/text/tokenizer/byte_bpe/added_tokens.h"

#include <algorithm>

#include "engine/core/limits.h"
#include "engine/core/strings/utf8.h"
#include "engine/text/unicode/properties.h"

namespace trafo {
namespace {

bool is_space(char32_t c) {
  static const CodePointTable table(white_space_set());
  return table.has(c);
}

bool is_word(char32_t c) {
  static const CodePointTable table(rust_word_set());
  return table.has(c);
}

// The beginning of the character that ends at `at`.
size_t character_before(std::string_view text, size_t at) {
  do --at;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80);
  return at;
}

char32_t character_at(std::string_view text, size_t at) {
  return next_code_point(text, at);
}

}  // namespace

AddedTokens::AddedTokens(const JsonPart& part, const TextNormalizer& normalizer) {
  for (const JsonPart& each : part.list()) {
    AddedToken token{each.at("content").text(),
                     {},
                     static_cast<int32_t>(each.at("id").integer(0, limits::kVocabulary - 1)),
                     each.at("special").flag(),
                     each.at("normalized").flag(),
                     each.at("single_word").flag(),
                     each.at("lstrip").flag(),
                     each.at("rstrip").flag()};
    each.check(!token.text.empty() && token.text.size() <= limits::kSubwordBytes,
               "its content has ", token.text.size(), " bytes, 1 to ", limits::kSubwordBytes,
               " are allowed");
    token.decoded = token.text;
    if (token.normalized) normalizer.apply(token.decoded);
    Trie& trie = token.normalized ? normalized_ : raw_;
    if (!token.decoded.empty()) trie.add(token.decoded, static_cast<int32_t>(all_.size()));
    all_.push_back(std::move(token));
  }
}

void AddedTokens::Trie::add(std::string_view text, int32_t value) {
  begins_[static_cast<unsigned char>(text.front())] = true;
  uint32_t node = 0;
  for (const char byte : text) {
    auto& next = nodes_[node].next;
    const auto found = std::lower_bound(next.begin(), next.end(), std::pair(byte, uint32_t{0}));
    if (found != next.end() && found->first == byte) {
      node = found->second;
      continue;
    }
    const auto added = static_cast<uint32_t>(nodes_.size());
    next.insert(found, {byte, added});
    nodes_.emplace_back();
    node = added;
  }
  if (nodes_[node].value < 0) nodes_[node].value = value;
}

int32_t AddedTokens::Trie::longest(std::string_view text, size_t at, size_t& end) const {
  if (!begins_[static_cast<unsigned char>(text[at])]) return -1;
  int32_t value = -1;
  uint32_t node = 0;
  for (; at < text.size(); ++at) {
    const auto& next = nodes_[node].next;
    const auto found = std::lower_bound(next.begin(), next.end(), std::pair(text[at], uint32_t{0}));
    if (found == next.end() || found->first != text[at]) break;
    node = found->second;
    if (nodes_[node].value < 0) continue;
    value = nodes_[node].value;
    end = at + 1;
  }
  return value;
}

void AddedTokens::cut(std::string_view text, bool in_normalized, bool special,
                      std::vector<Piece>& pieces) const {
  const Trie& trie = in_normalized ? normalized_ : raw_;
  pieces.clear();
  size_t from = 0;
  for (size_t at = 0; at < text.size() && !trie.empty();) {
    size_t end = 0;
    const int32_t found = trie.longest(text, at, end);
    if (found < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = all_[static_cast<size_t>(found)];
    size_t begin = at;
    at = end;
    if (token.special && !special) continue;
    if (token.single_word) {
      const bool left = begin > 0 && is_word(character_at(text, character_before(text, begin)));
      const bool right = end < text.size() && is_word(character_at(text, end));
      if (left || right) continue;
    }
    if (token.lstrip)
      while (begin > from && is_space(character_at(text, character_before(text, begin))))
        begin = character_before(text, begin);
    if (token.rstrip)
      while (end < text.size() && is_space(character_at(text, end))) next_code_point(text, end);
    if (from < begin) pieces.push_back({nullptr, text.substr(from, begin - from)});
    pieces.push_back({&token, text.substr(begin, end - begin)});
    from = end;
  }
  if (from < text.size()) pieces.push_back({nullptr, text.substr(from)});
}

}  // namespace trafo
