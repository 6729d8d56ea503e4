// Subword regularisation: random segmentations of a text, drawn by their probability for a unigram
// model (Kudo, arXiv 1804.10959) and by dropping merges for a BPE model (Provilkov et al., arXiv
// 1910.13267). SentencePiece's own sampling is not used because its random generator belongs to the
// thread and cannot be seeded.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "engine/core/shuffle.h"
#include "engine/text/tokenizer/tokenizer.h"

namespace trafo {

struct SubwordSampling {
  // 0: no sampling. Unigram: segmentation x has the probability p(x)^alpha / sum of all p^alpha; 1
  // is the model's own distribution, smaller values are more uniform. BPE: every merge is left out
  // with probability alpha.
  double source_alpha = 0, target_alpha = 0;
  uint64_t seed = 1;
};

// Immutable: any number of threads may use one.
class SubwordSampler {
 public:
  explicit SubwordSampler(const Tokenizer& tokenizer);

  // Replaces ids by a segmentation of the normalised text, drawn with `rng`.
  void sample(std::string_view text, double alpha, ShuffleRng& rng,
              std::vector<int32_t>& ids) const;

 private:
  struct Vocabulary;
  void sample_unigram(std::string_view text, double alpha, ShuffleRng& rng,
                      std::vector<int32_t>& ids) const;
  void sample_bpe(std::string_view text, double alpha, ShuffleRng& rng,
                  std::vector<int32_t>& ids) const;
  // For a character that is no token: its byte tokens, if the model has them, or <unk>.
  void add_unknown(std::string_view character, std::vector<int32_t>& ids) const;

  Tokenizer tokenizer_;
  std::shared_ptr<const Vocabulary> vocabulary_;
};

}  // namespace trafo
