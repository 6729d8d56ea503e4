// WordPiece (Schuster & Nakajima 2012; Devlin et al., arXiv 1810.04805), with the ids that the
// `tokenizers` library gives for the same tokenizer.json. A word is the longest tokens from its
// beginning on; a word that has no such tokens is the unknown token.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer/byte_bpe/json_model.h"

namespace trafo {

class WordPieceTokenizer final : public JsonModel {
 public:
  static constexpr std::string_view kKind = "wordpiece";
  // `text` is what read_tokenizer_text() makes of `serialized`. UNSUPPORTED and CORRUPT_FILE name
  // the key of the file.
  WordPieceTokenizer(std::string_view serialized, const TokenizerText& text, std::string_view label,
                     std::vector<CompanionFile> companions);

  std::string_view kind() const noexcept override { return kKind; }
  // Special tokens that are written out in a text stay text; other added tokens are found.
  void encode(std::string_view text, std::vector<int32_t>& ids) const override;
  void encode_part(std::string_view text, std::vector<int32_t>& ids) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  bool continues_character(int32_t) const override { return false; }
  bool bos_is_subword() const noexcept override {
    return special_.bos >= 0 && !is_special_[static_cast<size_t>(special_.bos)];
  }

 private:
  void read_model(const JsonPart& model, const SubwordTable& vocabulary);
  void read_decoder(const JsonPart& file);
  void encode_text(std::string_view text, bool is_part, std::vector<int32_t>& ids) const;
  void encode_word(std::string_view word, std::vector<int32_t>& ids) const;
  // The longest token at the beginning of `rest`; -1: none. Sets its bytes.
  int32_t longest(std::string_view rest, bool is_first, size_t& bytes) const;

  std::string prefix_;      // of tokens inside a word
  SubwordTable first_;      // all tokens of the model
  SubwordTable following_;  // those with the prefix, without it
  size_t longest_token_ = 0;
  size_t most_characters_ = 0;  // of a word that has tokens
  int32_t unknown_ = -1;
  std::string decoded_prefix_;
  bool joins_words_ = false;  // whether the decoder joins the tokens of a word
  bool cleans_up_ = false;    // whether it takes away spaces before punctuation marks
};

// The functions of the rows in tokenizer_kinds.cc.
bool is_wordpiece_file(std::string_view file_bytes);
Tokenizer load_wordpiece(std::string_view file_bytes, std::string_view label,
                         std::vector<CompanionFile> companions);
void validate_wordpiece(const TokenizerTrainOptions& options);

}  // namespace trafo
