// The text of tokens that come one by one, in pieces that never change.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/text/tokenizer/tokenizer.h"

namespace trafo {

class TextStream {
 public:
  // `before`: the tokens that the text continues, which have no part in it.
  TextStream(Tokenizer tokenizer, std::span<const int32_t> before);

  // Adds a token. Returns text that no later token changes, in whole characters; it may be empty.
  // All pieces and the end are Tokenizer::continuation() of all tokens.
  std::string push(int32_t id);
  // The text of tokens that were not decided: bytes of a character that is not complete.
  std::string finish();

 private:
  std::string take(size_t count);
  void shorten();

  Tokenizer tokenizer_;
  std::vector<int32_t> before_;   // the last tokens whose text was returned
  std::string before_text_;       // as a text of its own
  std::vector<int32_t> pending_;  // tokens after them
};

}  // namespace trafo
