// Pairs that are read and tokenised as batches need them: for corpora that are not kept in memory,
// and for sampled segmentations, which differ in every epoch.
#pragma once

#include <memory>

#include "engine/data/encode_pairs.h"
#include "engine/data/pair_source.h"
#include "engine/data/text_corpus.h"
#include "engine/text/tokenizer/subword_sampling.h"
#include "engine/text/tokenizer/tokenizer.h"

namespace trafo {

class TextPairs final : public PairSource {
 public:
  // Does not sample if both alphas of `sampling` are 0. num_threads only changes the speed.
  // `encoding` has a tokenizer, unless the corpus has ids.
  TextPairs(TextCorpus corpus, PairEncoding encoding, const TokenizedCorpusOptions& options,
            const SubwordSampling& sampling, int num_threads);

  int64_t draws(int64_t epoch) const override { return epochs_.draws(epoch); }
  void read(std::span<const uint32_t> draws, int64_t epoch, PairBlock& block,
            const std::atomic<bool>* stop) const override;
  bool is_slow() const noexcept override { return true; }
  bool varies() const noexcept override { return sampler_ || target_sampler_; }

 private:
  TextCorpus corpus_;
  PairEncoding encoding_;
  std::optional<Tokenizer> targets_;  // of the target side, or none
  EpochMix epochs_;
  SubwordSampling sampling_;
  std::unique_ptr<const SubwordSampler> sampler_, target_sampler_;  // of the two, or none
  int num_threads_;
};

}  // namespace trafo
