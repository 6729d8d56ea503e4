// Tokens that a text names, such as "<|im_start|>": where they are in a text.
#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace trafo {

struct NamedToken {
  std::string name;
  int32_t id = 0;
  // Whether the token takes the white space before or after it, as added tokens of tokenizer.json
  // with lstrip or rstrip do.
  bool takes_space_before = false, takes_space_after = false;
  bool is_single_word = false;  // no token beside a letter, a mark or a digit
  // The kind reads the token in any text: it stays in its part, and no other token is in its name.
  bool stays_in_text = false;
  // The token is in the normal form of a part, where the kind finds it. NamedTokens does not.
  bool is_normalized = false;
  bool is_special = true;  // no: the token is also found where special tokens are text
};

// Immutable.
class NamedTokens {
 public:
  explicit NamedTokens(std::vector<NamedToken> tokens);

  struct Part {
    std::string_view text;
    int32_t id = -1;  // -1: text between named tokens, never empty
  };
  // The parts of a text in their order. Where several names begin, the longest is the token.
  std::vector<Part> split(std::string_view text) const;

 private:
  // The token whose name begins at `place`, or null.
  const NamedToken* find(std::string_view text, size_t place) const;

  std::vector<NamedToken> tokens_;
  std::unordered_map<std::string_view, size_t> by_name_;  // views of the names in tokens_
  std::vector<size_t> lengths_;                           // of names, the longest first
  std::bitset<256> first_bytes_;
};

}  // namespace trafo
