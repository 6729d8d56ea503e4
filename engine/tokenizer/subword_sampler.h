// Random segmentations of a text, so that a model meets words in many cuts: of a unigram model by
// their probability (Kudo 2018), of a BPE model by dropping merges (Provilkov et al. 2020). Drawn
// here because SentencePiece's own generator belongs to the thread, which no seed can be given to.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "engine/core/shuffle.h"
#include "engine/tokenizer/tokenizer.h"

namespace trafo {

struct SubwordSampling {
  // 0: no sampling. Unigram: segmentation x is drawn with p(x)^alpha / sum of all p^alpha, so that
  // 1 is the model's own distribution and smaller values come closer to a uniform one. BPE: every
  // merge is left out with probability alpha.
  double source_alpha = 0, target_alpha = 0;
  uint64_t seed = 1;
};

// Immutable; any number of threads may sample.
class SubwordSampler {
 public:
  explicit SubwordSampler(const Tokenizer& tokenizer);

  // Replaces ids by a segmentation of the text as the tokenizer normalises it, drawn with `rng`.
  void sample(std::string_view text, double alpha, ShuffleRng& rng,
              std::vector<int32_t>& ids) const;

 private:
  struct Vocabulary;
  void sample_unigram(std::string_view text, double alpha, ShuffleRng& rng,
                      std::vector<int32_t>& ids) const;
  void sample_bpe(std::string_view text, double alpha, ShuffleRng& rng,
                  std::vector<int32_t>& ids) const;
  // A character that is no piece: its bytes, if the model has them, or <unk>.
  void add_unknown(std::string_view character, std::vector<int32_t>& ids) const;

  Tokenizer tokenizer_;
  std::shared_ptr<const Vocabulary> vocabulary_;
};

}  // namespace trafo
