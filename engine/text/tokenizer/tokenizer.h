// Tokenizers: text to token ids and back. Each kind is a folder beside this file and a row in
// tokenizer_kinds.cc.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/text_span.h"
#include "engine/text/tokenizer/companion_file.h"
#include "engine/text/tokenizer/named_tokens.h"
#include "engine/text/tokenizer/special_tokens.h"
#include "engine/text/tokenizer/train_options.h"

namespace trafo {

class SentencePieceModel;
class SubwordSampler;

// Immutable: any number of threads may use one. Copies share the model.
class Tokenizer {
 public:
  // Each kind implements it.
  class Model;
  explicit Tokenizer(std::shared_ptr<const Model> model);

  // A vocabulary of options.kind. The same sentences and options give the same one. Sentences
  // longer than 4,192 bytes are left out (SentencePiece's default limit). INVALID_ARGUMENT: an
  // option; invalid UTF-8, a NUL byte, an empty corpus, or a vocab_size that the corpus cannot
  // fill; the message names the largest size.
  static Tokenizer train(std::span<const std::string_view> sentences,
                         const TokenizerTrainOptions& options);
  static Tokenizer train(std::span<const std::string> sentences,
                         const TokenizerTrainOptions& options);
  // A vocabulary file of any kind, which its content tells; or a directory that has one, see
  // vocabulary_file(). With the companions of its kind that lie beside it, if the file has the name
  // of its kind. NOT_FOUND, IO; CORRUPT_FILE: not a usable vocabulary; UNSUPPORTED.
  static Tokenizer load(const std::filesystem::path& file);
  // Error messages show `name` as the file.
  static Tokenizer from_bytes(std::string_view serialized, std::string_view name = "tokenizer",
                              std::vector<CompanionFile> companions = {});

  // The same vocabulary, whose encode() and sampler() read the names of special tokens in texts,
  // such as "</s>", as those tokens; the text between two of them is encoded by itself. The kind
  // says which tokens these are. Without this, a text never spells one.
  Tokenizer parsing_special() const;
  bool parses_special() const noexcept { return special_ != nullptr; }

  std::string_view kind() const noexcept;       // a name in tokenizer_kinds.cc
  std::string_view file_name() const noexcept;  // of its file in the directory of a model
  // The bytes of its file. Two tokenizers are the same vocabulary if these are equal.
  const std::string& serialized() const noexcept;
  // Files that came with it, such as tokenizer_config.json, and that lie beside its own. They may
  // say which tokens are special.
  const std::vector<CompanionFile>& companions() const noexcept;
  // The same vocabulary with this file among its companions, in place of one with its name. The
  // special tokens stay as they are.
  Tokenizer with_companion(CompanionFile file) const;

  // This vocabulary with these tokens after its own, each with the next id. A special token is
  // found only where a tokenizer parses special tokens, and may be a language; others are found in
  // every text. The settings of this tokenizer, such as its languages, are not kept.
  // INVALID_ARGUMENT names the token: it is there already, empty, too long, or one that no text can
  // have. UNSUPPORTED names the kind, if its vocabularies have a fixed set of tokens.
  Tokenizer with_tokens(std::span<const std::string> tokens, bool special) const;

  // The same vocabulary, whose encode() and sampler() are of targets. Most kinds cut sources and
  // targets alike: then it is this tokenizer.
  Tokenizer for_targets() const;
  // The same vocabulary, whose ids are of sources. Where sources and targets have different
  // vocabularies, all other functions here with ids, but encode() and sampler(), are about ids of
  // targets. Elsewhere it is this tokenizer.
  Tokenizer for_sources() const;
  int32_t source_vocab_size() const noexcept;  // vocab_size() of for_sources()
  bool has_separate_sources() const noexcept;  // they have another vocabulary than targets

  // The same vocabulary for texts of these languages, as M2M100 and NLLB-200 have them: encode()
  // and sampler() put the token of the source language in front of a source that has tokens, and of
  // the target language in front of every target. A code is the name of a special token, such as
  // "eng_Latn", or the part between "__" and "__". INVALID_ARGUMENT: the vocabulary has not this
  // language; the message lists some that it has.
  Tokenizer with_languages(std::string_view source, std::string_view target) const;
  // The special tokens that can be languages: their names are in no angle brackets, and they do
  // not begin, end or fill texts.
  std::vector<std::string> languages() const;
  // The language in front of texts or, without languages, Model::text_begin(); -1: none.
  int32_t language() const noexcept { return of_targets_ ? target_language_ : source_language_; }
  // A number that differs where encode() differs for the same vocabulary.
  uint64_t reading() const noexcept;

  // The tokens of a text, without bos and eos. INVALID_ARGUMENT: invalid UTF-8 or a NUL byte.
  std::vector<int32_t> encode(std::string_view text) const;
  void encode(std::string_view text, std::vector<int32_t>& ids) const;  // replaces ids
  // As encode(), with the names of special tokens read as those tokens. marked[i] is 1 if token i
  // has a byte of one of the parts, which are in their order and apart from each other.
  void encode_marked(std::string_view text, std::span<const TextSpan> parts,
                     std::vector<int32_t>& ids, std::vector<uint8_t>& marked) const;
  // Special tokens give no text. INVALID_ARGUMENT: an id is not 0 to vocab_size() - 1.
  std::string decode(std::span<const int32_t> ids) const;
  // The text that `ids` add to the text of `before`. Alone they would lose a space in front.
  std::string continuation(std::span<const int32_t> before, std::span<const int32_t> ids) const;
  // How many of the last tokens have a text that a token after them can change: they are bytes of a
  // character that is not complete, or are shown otherwise if a wrong byte follows. The text of the
  // tokens before is the beginning of every longer text.
  size_t open_tail(std::span<const int32_t> ids) const;

  int32_t vocab_size() const noexcept;
  // For these, INVALID_ARGUMENT: id is not 0 to vocab_size() - 1.
  const std::string& token(int32_t id) const;  // its name: unique, UTF-8, without white space
  bool continues_character(int32_t id) const;  // never the first token of a character
  // The bytes that a token adds to a text that has begun; none of a special or unknown token.
  // UNSUPPORTED: the bytes depend on other tokens, as in WordPiece and Marian's vocabularies.
  std::string token_bytes(int32_t id) const;
  int32_t id(std::string_view token) const;  // unk_id() if the vocabulary lacks the token

  int32_t unk_id() const noexcept { return special_tokens().unk; }
  int32_t bos_id() const noexcept { return special_tokens().bos; }
  int32_t eos_id() const noexcept { return special_tokens().eos; }
  int32_t pad_id() const noexcept { return special_tokens().pad; }
  SpecialTokens special_tokens() const noexcept;
  // Tokens beside eos that end a text which a model generates; vocabularies of imported models.
  const std::vector<int32_t>& further_end_ids() const noexcept;
  VocabularyTokens tokens() const { return {special_tokens(), further_end_ids()}; }
  // Whether bos is a subword that texts have too, as in some imported models.
  bool bos_is_subword() const noexcept;

  // Random segmentations; must not outlive the last copy of the tokenizer. UNSUPPORTED: the
  // vocabulary has one segmentation of a text only.
  std::unique_ptr<const SubwordSampler> sampler() const;
  // For exporters and what else needs SentencePiece's own data. Null: of another kind.
  const SentencePieceModel* as_sentencepiece() const noexcept;

 private:
  struct SpecialNames;
  class PartSampler;
  class LanguageSampler;
  void add_language(std::vector<int32_t>& ids) const;

  std::shared_ptr<const Model> model_;
  int32_t source_language_ = -1, target_language_ = -1;
  bool of_targets_ = false;
  std::shared_ptr<const SpecialNames> special_;  // null: texts are never special tokens
  std::shared_ptr<const std::vector<CompanionFile>> companions_;  // null: those of the model
};

// Immutable once it is made. Tokenizer checks the arguments: texts are UTF-8 without NUL bytes, ids
// are in the vocabulary.
class Tokenizer::Model {
 public:
  virtual ~Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  virtual std::string_view kind() const noexcept = 0;
  virtual int32_t vocab_size() const noexcept = 0;
  virtual void encode(std::string_view text, std::vector<int32_t>& ids) const = 0;
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
  virtual size_t open_tail(std::span<const int32_t> /*ids*/) const { return 0; }
  virtual const std::string& token(int32_t id) const = 0;
  virtual int32_t id(std::string_view token) const = 0;
  virtual bool continues_character(int32_t id) const = 0;
  virtual bool bos_is_subword() const noexcept { return false; }
  virtual std::unique_ptr<const SubwordSampler> sampler() const;  // UNSUPPORTED
  virtual const SentencePieceModel* as_sentencepiece() const noexcept { return nullptr; }
  // The file of Tokenizer::with_tokens(), whose checks are done. UNSUPPORTED: the kind has none.
  virtual std::string with_tokens(std::span<const std::string> tokens, bool special) const;
  // Whether a token has this text.
  virtual bool has_text(std::string_view text) const;
  // The model of targets, if they are encoded otherwise than sources.
  virtual std::shared_ptr<const Model> for_targets() const { return nullptr; }
  // The model of sources, if their ids are of another vocabulary.
  virtual std::shared_ptr<const Model> for_sources() const { return nullptr; }

  // The tokens that parsing_special() looks for.
  virtual std::vector<NamedToken> special_names() const { return {}; }
  // As encode() and sampler(), of a text between these tokens, in which those with is_normalized
  // are found.
  virtual void encode_part(std::string_view text, std::vector<int32_t>& ids) const {
    encode(text, ids);
  }
  virtual std::unique_ptr<const SubwordSampler> part_sampler() const;
  // The model for a text after a special token, if that is encoded otherwise than a whole text.
  virtual std::shared_ptr<const Model> after_special() const { return nullptr; }
  // Whether a text after a special token is encoded as a whole text, with this model.
  virtual bool begins_anew(std::string_view /*text*/) const { return false; }
  virtual std::string token_bytes(int32_t id) const;  // Tokenizer::token_bytes; UNSUPPORTED

  void check_id(int32_t id) const;  // INVALID_ARGUMENT: it is not in the vocabulary
  const std::string& serialized() const noexcept { return serialized_; }
  const std::vector<CompanionFile>& companions() const noexcept { return companions_; }
  const SpecialTokens& special_tokens() const noexcept { return special_; }
  const std::vector<int32_t>& further_end_ids() const noexcept { return further_ends_; }
  // The token in front of sources and targets of an encoder-decoder, as <s> of BART; -1: none.
  int32_t text_begin() const noexcept { return text_begin_; }

 protected:
  explicit Model(std::string_view serialized) : serialized_(serialized) {}

  const std::string serialized_;
  SpecialTokens special_;
  std::vector<int32_t> further_ends_;
  int32_t text_begin_ = -1;
  std::vector<CompanionFile> companions_;
};

}  // namespace trafo
