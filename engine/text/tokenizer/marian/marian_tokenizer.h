// The tokenizer of a MarianMT model (OPUS-MT), as MarianTokenizer of transformers reads it: one
// SentencePiece model cuts sources and one targets, and vocab.json has the ids of both. With
// target_vocab.json, vocab.json has those of sources alone.
//
// A text that begins with a language tag, such as ">>fra<<", has it as its first token, and what
// follows is cut as a text of its own. A subword that vocab.json lacks is <unk>.
//
// The tokenizer of M2M100 is the same with one SentencePiece model and other languages: their
// tokens follow after vocab.json, no text names them, and they give no text.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer/tokenizer.h"

namespace trafo {

class MarianTokenizer final : public Tokenizer::Model {
 public:
  static constexpr std::string_view kKind = "marian";
  // CORRUPT_FILE with `label`; UNSUPPORTED names the key of tokenizer_config.json.
  MarianTokenizer(std::string_view serialized, std::string_view label);

  std::string_view kind() const noexcept override { return kKind; }
  int32_t vocab_size() const noexcept override;
  void encode(std::string_view text, std::vector<int32_t>& ids) const override;
  // By the model of the side whose ids they are, where sides have their own, or else by that of
  // targets. A token that it lacks is its name.
  std::string decode(std::span<const int32_t> ids) const override;
  size_t open_tail(std::span<const int32_t> ids) const override;
  const std::string& token(int32_t id) const override;
  int32_t id(std::string_view token) const override;
  bool continues_character(int32_t id) const override;
  bool bos_is_subword() const noexcept override { return start_is_subword_; }
  std::unique_ptr<const SubwordSampler> sampler() const override;
  std::shared_ptr<const Model> for_targets() const override { return targets_; }
  std::shared_ptr<const Model> for_sources() const override { return sources_; }
  // </s>, <unk>, the first token of the decoder, <pad> and languages of M2M100.
  std::vector<NamedToken> special_names() const override;

 private:
  class Sampler;
  struct Ids;
  struct Vocabulary;
  struct Side;
  // The same vocabulary for texts and ids of one side.
  MarianTokenizer(const MarianTokenizer& sources, const Side& side);
  bool is_language(int32_t id) const;

  std::shared_ptr<const Vocabulary> vocabulary_;
  const Side *side_, *ids_side_;  // in *vocabulary_: of texts, and of the ids that are given
  bool start_is_subword_ = false;
  std::shared_ptr<const MarianTokenizer> targets_;  // null: this is of one side
  std::shared_ptr<const MarianTokenizer> sources_;  // null: ids of sources are those of targets
};

// The functions of the row in tokenizer_kinds.cc.
Tokenizer load_marian(std::string_view file_bytes, std::string_view label);
// INVALID_ARGUMENT: such a vocabulary comes with a model.
void validate_marian(const TokenizerTrainOptions& options);

}  // namespace trafo
