// Random segmentations: drawn by their probability for a unigram model (Kudo, arXiv 1804.10959) and
// by dropping merges for a BPE model (Provilkov et al., arXiv 1910.13267). SentencePiece's own
// sampling is not used because its random generator belongs to the thread and cannot be seeded.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer/sentencepiece/sentencepiece_model.h"
#include "engine/text/tokenizer/subword_sampling.h"

namespace trafo {

class SentencePieceSampler final : public SubwordSampler {
 public:
  // Borrows the model. UNSUPPORTED: it is neither a unigram nor a BPE model.
  explicit SentencePieceSampler(const SentencePieceModel& model);
  ~SentencePieceSampler() override;

  void sample(std::string_view text, double alpha, ShuffleRng& rng,
              std::vector<int32_t>& ids) const override;

 private:
  struct Vocabulary;
  void sample_unigram(std::string_view text, double alpha, ShuffleRng& rng,
                      std::vector<int32_t>& ids) const;
  void sample_bpe(std::string_view text, double alpha, ShuffleRng& rng,
                  std::vector<int32_t>& ids) const;
  // For a character that is no token: its byte tokens, if the model has them, or <unk>.
  void add_unknown(std::string_view character, std::vector<int32_t>& ids) const;

  const SentencePieceModel& model_;
  std::unique_ptr<const Vocabulary> vocabulary_;
};

}  // namespace trafo
