// What a run trains and validates on.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/data/batcher.h"
#include "engine/data/text_corpus.h"
#include "engine/models/model_config.h"
#include "engine/tokenizer/tokenizer.h"
#include "engine/train/options.h"

namespace trafo {

struct TrainingData {
  std::shared_ptr<const PairSource> train;
  std::shared_ptr<const TokenizedCorpus> valid;  // null: no validation
  SpecialTokens tokens;
  // For the metrics that translate (bleu, chrf): all validation pairs, also those too long for
  // `valid`, whose sources are cut.
  std::optional<Tokenizer> tokenizer;
  std::vector<std::string> valid_sources, valid_references;
};

// Text to data, with the lengths of `options` for a model of `config`. `valid` may be null.
// UNSUPPORTED: a vocabulary that has no other segmentations to sample.
TrainingData prepare_data(const TextCorpus& train, const TextCorpus* valid,
                          const Tokenizer& tokenizer, const ModelConfig& config,
                          const TrainOptions& options, int num_threads);

// Of text in memory.
TrainingData prepare_data(const ParallelCorpus& train, const ParallelCorpus* valid,
                          const Tokenizer& tokenizer, const ModelConfig& config,
                          const TrainOptions& options, int num_threads);

// INVALID_ARGUMENT naming what does not fit: corpus form, vocabulary, lengths, metrics.
void check_data(const TrainingData& data, const ModelConfig& config, const TrainOptions& options);

}  // namespace trafo
