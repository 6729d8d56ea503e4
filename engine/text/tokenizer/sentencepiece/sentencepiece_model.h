// The tokenizer of a SentencePiece model (.spm), trained here or loaded.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer/sentencepiece/spm_model.h"
#include "engine/text/tokenizer/tokenizer.h"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace trafo {

// A run of normalised text, with spaces as U+2581; or one user-defined token, which is never split.
struct NormalizedRun {
  std::string text;
  int32_t id = -1;  // the user-defined token, or -1
};

// Vocabularies trained here have unk 0, bos 1, eos 2 and pad 3. A loaded model must have unk and
// eos; bos or pad is -1 if it has none.
class SentencePieceModel final : public Tokenizer::Model {
 public:
  static constexpr std::string_view kKind = "sentencepiece";
  // CORRUPT_FILE with `label`.
  SentencePieceModel(std::string_view serialized, std::string_view label);
  ~SentencePieceModel() override;

  std::string_view kind() const noexcept override { return kKind; }
  int32_t vocab_size() const noexcept override;
  void encode(std::string_view text, std::vector<int32_t>& ids) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  size_t open_tail(std::span<const int32_t> ids) const override;
  const std::string& token(int32_t id) const override;
  int32_t id(std::string_view token) const override;
  bool continues_character(int32_t id) const override;
  std::string token_bytes(int32_t id) const override;
  bool bos_is_subword() const noexcept override;
  std::unique_ptr<const SubwordSampler> sampler() const override;
  const SentencePieceModel* as_sentencepiece() const noexcept override { return this; }
  // The same file with control or user-defined subwords at its end.
  std::string with_tokens(std::span<const std::string> tokens, bool special) const override;
  // Control tokens. The library itself reads the user-defined ones.
  std::vector<NamedToken> special_names() const override;
  // Writes no space in front of a text, as only the beginning of a whole text has one.
  std::shared_ptr<const Model> after_special() const override;
  // A model that removes the spaces at the beginning of a text writes its own in their place.
  bool begins_anew(std::string_view text) const override;

  // For the next two, INVALID_ARGUMENT: invalid UTF-8 or a NUL byte. The tokens of a text as text;
  // an unknown one is the text itself, normalised.
  std::vector<std::string> encode_as_text(std::string_view text) const;
  std::vector<NormalizedRun> normalize(std::string_view text) const;
  // The text of tokens by their names. One that this model lacks is its name.
  std::string decode_names(const std::vector<std::string>& names) const;
  SpmKind model_kind() const noexcept { return summary_.kind; }
  // For these, INVALID_ARGUMENT: the id is not in the vocabulary.
  SubwordType type(int32_t id) const;
  float score(int32_t id) const;  // log-probability (unigram) or merge rank (BPE)

 private:
  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
  SpmSummary summary_;
};

// The functions of the row in tokenizer_kinds.cc.
bool is_sentencepiece_file(std::string_view file_bytes);
Tokenizer load_sentencepiece(std::string_view file_bytes, std::string_view label);
void validate_sentencepiece(const TokenizerTrainOptions& options);
Tokenizer train_sentencepiece(std::span<const std::string_view> sentences,
                              const TokenizerTrainOptions& options);

}  // namespace trafo
