// The decoder of a tokenizer.json whose vocabulary has tokens for bytes: Replace of each token,
// ByteFallback, Fuse, and Strip of the whole text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer/byte_bpe/json_part.h"
#include "engine/text/tokenizer/byte_bpe/text_normalizer.h"

namespace trafo {

// Immutable once it is made.
class FallbackDecoder {
 public:
  FallbackDecoder() = default;
  // UNSUPPORTED and CORRUPT_FILE name the key.
  explicit FallbackDecoder(const JsonPart& part);

  // The text of a token, without its neighbours.
  void replace(std::string& token) const { replacements_.apply(token); }
  // Appends the characters of byte tokens that follow each other. If they are no UTF-8, each byte
  // becomes U+FFFD. Bytes that begin a character at the end of a text give no text: the next token
  // may finish it.
  static void append_bytes(std::string_view bytes, bool is_end, std::string& text);
  // The last step.
  void strip(std::string& text) const;

 private:
  struct Strip {
    std::string content;  // a character
    int64_t start, stop;  // at most this many at the two ends
  };
  TextNormalizer replacements_;
  std::vector<Strip> strips_;
};

}  // namespace trafo
