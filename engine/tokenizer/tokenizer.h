// Subword tokenizer: a SentencePiece model (.spm), trained here or loaded.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tokenizer/special_tokens.h"
#include "engine/tokenizer/spm_model.h"

namespace trafo {

enum class TokenizerModel { unigram, bpe };

struct TokenizerTrainOptions {
  int32_t vocab_size = 8000;  // pieces in total: special, byte and learned ones
  TokenizerModel model = TokenizerModel::unigram;
  double character_coverage = 1.0;  // share of the characters that get an own piece, in [0.98, 1]
  bool byte_fallback = false;       // 256 byte pieces, so that nothing becomes <unk>
  // true: a corpus too small for vocab_size is an error. false: the vocabulary may come out
  // smaller.
  bool hard_vocab_limit = true;
  int64_t max_sentences = 2'000'000;  // a larger corpus is sampled down to this many, by seed
  uint64_t seed = 1;
};

// Throws INVALID_ARGUMENT naming the field and what it may be.
void validate(const TokenizerTrainOptions& options);

// Normalised text as pieces are cut from it, spaces as U+2581; or one piece that is never cut.
struct NormalizedRun {
  std::string text;
  int32_t id = -1;  // of the piece, else -1
};

// Immutable after construction; const members may be called from any number of threads at once.
// Copies share the model. Trained models have unk 0, bos 1, eos 2, pad 3; a loaded one must have
// unk and eos, and has -1 for what it lacks.
class Tokenizer {
 public:
  // Same sentences, options: same bytes, on every run. Sentences longer than 4,192 bytes do not
  // take part (SentencePiece's default limit). INVALID_ARGUMENT: invalid UTF-8, NUL, empty corpus,
  // or a vocab_size the corpus cannot fill, in which case the message names the size that fits.
  static Tokenizer train(std::span<const std::string_view> sentences,
                         const TokenizerTrainOptions& options);
  static Tokenizer train(std::span<const std::string> sentences,
                         const TokenizerTrainOptions& options);
  // IO when unreadable; CORRUPT_FILE when it is not a usable SentencePiece model.
  static Tokenizer load(const std::filesystem::path& file);
  // `name` stands for the file in error messages.
  static Tokenizer from_bytes(std::string_view serialized, std::string_view name = "tokenizer");

  const std::string& serialized() const noexcept;  // the .spm file's bytes

  // Pieces only: no bos, no eos is added. INVALID_ARGUMENT on invalid UTF-8 or NUL.
  std::vector<int32_t> encode(std::string_view text) const;
  void encode(std::string_view text, std::vector<int32_t>& ids) const;  // replaces ids
  std::string decode(std::span<const int32_t> ids) const;               // special ids give no text

  // INVALID_ARGUMENT on invalid UTF-8 or NUL.
  std::vector<NormalizedRun> normalize(std::string_view text) const;

  SpmKind kind() const noexcept;
  SpmPiece type(int32_t id) const;  // INVALID_ARGUMENT out of [0, vocab_size)
  int32_t vocab_size() const noexcept;
  const std::string& piece(int32_t id) const;  // INVALID_ARGUMENT out of [0, vocab_size)
  int32_t id(std::string_view piece) const;    // unk_id() for a piece not in the vocabulary
  float score(int32_t id) const;               // log-probability (unigram) or merge rank (BPE)

  int32_t unk_id() const noexcept;
  int32_t bos_id() const noexcept;
  int32_t eos_id() const noexcept;
  int32_t pad_id() const noexcept;
  SpecialTokens special_tokens() const noexcept { return {bos_id(), eos_id(), pad_id(), unk_id()}; }

 private:
  struct Model;
  explicit Tokenizer(std::shared_ptr<const Model> model) : model_(std::move(model)) {}
  std::shared_ptr<const Model> model_;
};

}  // namespace trafo
