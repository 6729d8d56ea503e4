// Options for the training of a vocabulary.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trafo {

class CancelToken;

enum class TokenizerModel { unigram, bpe };

// The normal form of a text, by the names of SentencePiece. nmt: white space of all kinds becomes a
// space, control characters vanish. cf: letters are folded to lower case.
enum class Normalization { nmt_nfkc, nfkc, nmt_nfkc_cf, nfkc_cf, identity };
inline constexpr const char* kNormalizationNames[] = {"nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf",
                                                      "identity"};

struct TokenizerTrainOptions {
  std::string kind = "sentencepiece";  // a row of tokenizer_kinds.cc; it may refuse other options
  int32_t vocab_size = 8000;           // tokens in total: special, byte and learned ones
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
  const CancelToken* cancel = nullptr;  // CANCELLED soon after it is set
};

// Throws INVALID_ARGUMENT naming the field and what it may be.
void validate(const TokenizerTrainOptions& options);

}  // namespace trafo
