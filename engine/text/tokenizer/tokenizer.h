// Subword tokenizer: a SentencePiece model (.spm), trained here or loaded.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer/sentencepiece/spm_model.h"
#include "engine/text/tokenizer/special_tokens.h"

namespace trafo {

enum class TokenizerModel { unigram, bpe };

// The normal form of a text, by the names of SentencePiece. nmt: white space of all kinds becomes a
// space, control characters vanish. cf: letters are folded to lower case.
enum class Normalization { nmt_nfkc, nfkc, nmt_nfkc_cf, nfkc_cf, identity };
inline constexpr const char* kNormalizationNames[] = {"nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf",
                                                      "identity"};

struct TokenizerTrainOptions {
  int32_t vocab_size = 8000;  // tokens in total: special, byte and learned ones
  TokenizerModel model = TokenizerModel::unigram;
  double character_coverage = 1.0;  // share of the characters that become tokens, 0.98 to 1
  bool byte_fallback = false;       // adds 256 byte tokens, so that no text becomes <unk>
  // true: a corpus that is too small for vocab_size is an error. false: the vocabulary may be
  // smaller.
  bool hard_vocab_limit = true;
  int64_t max_sentences = 2'000'000;  // of a larger corpus, a sample of this size, by seed
  uint64_t seed = 1;
  // The forms with nmt turn U+200C (zero width non-joiner) into a space, unless the text writes
  // words with it, as Persian and Telugu do: then it stays a character.
  Normalization normalization = Normalization::nmt_nfkc;
  // Texts that are one token each, wherever they stand, and not normalised.
  std::vector<std::string> user_symbols;
};

// Throws INVALID_ARGUMENT naming the field and what it may be.
void validate(const TokenizerTrainOptions& options);

// A run of normalised text, with spaces as U+2581; or one user-defined token, which is never split.
struct NormalizedRun {
  std::string text;
  int32_t id = -1;  // the user-defined token, or -1
};

// Immutable: any number of threads may use one. Copies share the model. Vocabularies trained here
// have unk 0, bos 1, eos 2 and pad 3. A loaded model must have unk and eos; bos or pad is -1 if it
// has none.
class Tokenizer {
 public:
  // The same sentences and options give the same model. Sentences longer than 4,192 bytes are left
  // out (SentencePiece's default limit). INVALID_ARGUMENT: invalid UTF-8, a NUL byte, an empty
  // corpus, or a vocab_size that the corpus cannot fill; the message names the largest size.
  static Tokenizer train(std::span<const std::string_view> sentences,
                         const TokenizerTrainOptions& options);
  static Tokenizer train(std::span<const std::string> sentences,
                         const TokenizerTrainOptions& options);
  // NOT_FOUND, IO; CORRUPT_FILE: not a usable SentencePiece model.
  static Tokenizer load(const std::filesystem::path& file);
  // Error messages show `name` as the file.
  static Tokenizer from_bytes(std::string_view serialized, std::string_view name = "tokenizer");

  const std::string& serialized() const noexcept;  // the .spm file's bytes

  // The tokens of a text, without bos and eos. INVALID_ARGUMENT: invalid UTF-8 or a NUL byte.
  std::vector<int32_t> encode(std::string_view text) const;
  void encode(std::string_view text, std::vector<int32_t>& ids) const;  // replaces ids
  // The same tokens as text. An unknown one is the text itself, normalised.
  std::vector<std::string> encode_as_text(std::string_view text) const;
  std::string decode(std::span<const int32_t> ids) const;  // special tokens give no text

  // INVALID_ARGUMENT: invalid UTF-8 or a NUL byte.
  std::vector<NormalizedRun> normalize(std::string_view text) const;

  SpmKind kind() const noexcept;
  // For these and token(), INVALID_ARGUMENT: id is not 0 to vocab_size() - 1.
  SubwordType type(int32_t id) const;
  int32_t vocab_size() const noexcept;
  const std::string& token(int32_t id) const;  // the subword
  int32_t id(std::string_view subword) const;  // unk_id() if the vocabulary lacks the subword
  float score(int32_t id) const;               // log-probability (unigram) or merge rank (BPE)

  int32_t unk_id() const noexcept;
  int32_t bos_id() const noexcept;
  int32_t eos_id() const noexcept;
  int32_t pad_id() const noexcept;
  // Tokens beside eos that end a text which a model generates; vocabularies of imported models.
  const std::vector<int32_t>& further_end_ids() const noexcept;
  // Whether bos is a subword that texts have too, as in some imported models.
  bool bos_is_subword() const noexcept;
  SpecialTokens special_tokens() const noexcept { return {bos_id(), eos_id(), pad_id(), unk_id()}; }

 private:
  struct Model;
  explicit Tokenizer(std::shared_ptr<const Model> model) : model_(std::move(model)) {}
  std::shared_ptr<const Model> model_;
};

}  // namespace trafo
