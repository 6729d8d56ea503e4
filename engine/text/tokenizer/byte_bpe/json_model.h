// The parts of a tokenizer.json that do not depend on its model: normalizer, pre-tokenizer, added
// tokens, names and special tokens.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer/byte_bpe/added_tokens.h"
#include "engine/text/tokenizer/byte_bpe/pre_tokenizer.h"
#include "engine/text/tokenizer/byte_bpe/text_normalizer.h"
#include "engine/text/tokenizer/tokenizer.h"
#include "engine/text/tokenizer/tokenizer_json_text.h"

namespace trafo {

// A constructor of a model calls reserve_tokens(), which makes room, sets the texts of its tokens
// with set_token(), and calls read_steps(), add_tokens() and finish(), in this order.
class JsonModel : public Tokenizer::Model {
 public:
  int32_t vocab_size() const noexcept override { return static_cast<int32_t>(tokens_.size()); }
  const std::string& token(int32_t id) const override { return tokens_[static_cast<size_t>(id)]; }
  int32_t id(std::string_view token) const override;
  // The same file with more added tokens.
  std::string with_tokens(std::span<const std::string> tokens, bool special) const override;
  bool has_text(std::string_view text) const override;
  // Added tokens, whose places in a text depend on each other.
  std::vector<NamedToken> special_names() const override;

 protected:
  // names_bytes: white space in the name of a token is written "<0x20>" instead of "<U+0020>".
  JsonModel(std::string_view serialized, bool names_bytes)
      : Model(serialized), names_bytes_(names_bytes) {}

  // CORRUPT_FILE: there is no subword.
  void reserve_tokens(const JsonPart& model, const SubwordTable& vocabulary);
  // CORRUPT_FILE: the id has a token already.
  void set_token(const JsonPart& model, uint32_t id, std::string_view text);
  void read_steps(const JsonPart& file);
  void add_tokens(const JsonPart& file);
  // Indexes the names and chooses the special tokens.
  void finish(const JsonPart& file, std::vector<CompanionFile> companions);
  std::string name_of(std::string_view text) const;

  // Replaces ids by those of the text: calls word(bytes, ids) for each word between added tokens.
  // is_part: it is for encode_part(), so the tokens that are not normalised have been found, and
  // special tokens are no text.
  template <class Word>
  void encode_words(std::string_view text, bool is_part, std::vector<int32_t>& ids,
                    const Word& word) const {
    std::vector<AddedTokens::Piece> pieces, inside;
    PreTokenizer::Words words;
    std::string normal;
    ids.clear();
    if (is_part)
      pieces.push_back({nullptr, text});
    else
      added_.cut(text, false, false, pieces);
    for (const AddedTokens::Piece& piece : pieces) {
      if (piece.token != nullptr) {
        ids.push_back(piece.token->id);
        continue;
      }
      std::string_view plain = piece.text;
      if (!normalizer_.changes_nothing()) {
        normal = plain;
        normalizer_.apply(normal);
        plain = normal;
      }
      added_.cut(plain, true, is_part, inside);
      for (const AddedTokens::Piece& part : inside) {
        if (part.token != nullptr) {
          ids.push_back(part.token->id);
          continue;
        }
        const bool is_beginning =
            begins_texts_ && &piece == pieces.data() && &part == inside.data();
        pre_tokenizer_->split(part.text, words, is_beginning);
        for (const Pattern::Match& span : words.spans)
          word(std::string_view(words.text).substr(span.begin, span.end - span.begin), ids);
      }
    }
  }

  const bool names_bytes_;
  bool begins_texts_ = true;  // whether no token goes before the texts
  TextNormalizer normalizer_;
  std::unique_ptr<const PreTokenizer> pre_tokenizer_;
  AddedTokens added_;
  std::vector<std::string> tokens_;  // names
  std::vector<std::string> bytes_;   // of each token, for decoding
  std::vector<bool> is_special_;

 private:
  void index_tokens(const JsonPart& file);
  SubwordTable names_;
};

}  // namespace trafo
