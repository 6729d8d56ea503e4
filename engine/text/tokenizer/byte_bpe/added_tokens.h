// The added tokens of a tokenizer.json: texts that are one token each, found before a text is cut
// into words.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer/byte_bpe/json_part.h"
#include "engine/text/tokenizer/byte_bpe/text_normalizer.h"

namespace trafo {

struct AddedToken {
  std::string text;
  std::string decoded;  // the text, normalised if `normalized`
  int32_t id;
  bool special;         // found only where a tokenizer parses special tokens
  bool normalized;      // found in the normalised text
  bool single_word;     // not beside a letter or a digit
  bool lstrip, rstrip;  // takes the white space before or after it
};

// Immutable: any number of threads may use one.
class AddedTokens {
 public:
  AddedTokens() = default;
  // `part` is the list in the file. CORRUPT_FILE names the key.
  AddedTokens(const JsonPart& part, const TextNormalizer& normalizer);

  const std::vector<AddedToken>& all() const { return all_; }

  // A token, or a run of other text if it is null.
  struct Piece {
    const AddedToken* token;
    std::string_view text;
  };
  // Cuts a text at the tokens of one kind: those that are normalised or the others. Without
  // `special`, special tokens stay text, and no other token is found in one.
  void cut(std::string_view text, bool in_normalized, bool special,
           std::vector<Piece>& pieces) const;

 private:
  // A trie of texts.
  class Trie {
   public:
    void add(std::string_view text, int32_t value);  // the first of two equal texts counts
    bool empty() const { return nodes_.size() == 1; }
    // The longest text that begins at `at`; -1: none.
    int32_t longest(std::string_view text, size_t at, size_t& end) const;

   private:
    struct Node {
      int32_t value = -1;
      std::vector<std::pair<char, uint32_t>> next;  // sorted
    };
    std::vector<Node> nodes_ = std::vector<Node>(1);
    bool begins_[256] = {};
  };

  std::vector<AddedToken> all_;
  Trie raw_, normalized_;
};

}  // namespace trafo
