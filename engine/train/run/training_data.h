// The data of a training run.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/data/batcher.h"
#include "engine/data/encode_pairs.h"
#include "engine/data/text_corpus.h"
#include "engine/objective/frozen_model.h"
#include "engine/text/tokenizer/tokenizer.h"
#include "engine/train/run/options.h"

namespace trafo {

struct TrainingData {
  std::shared_ptr<const PairSource> train;       // sizes alone where the program gives the batches
  std::shared_ptr<const TokenizedCorpus> valid;  // null: no validation
  SpecialTokens tokens;
  // For metrics that need translations: all validation pairs. Pairs that are too long for
  // `valid` are included, with truncated sources.
  std::optional<Tokenizer> tokenizer;
  std::vector<std::string> valid_sources, valid_references;
  // The line of each validation pair in its file, counted from 0, and the number of lines there.
  // Lines with an empty side are no pairs. No lines: pair i is line i.
  std::vector<int64_t> valid_lines;
  int64_t valid_line_count = 0;
  // The other model of the objective; null: none.
  std::shared_ptr<const FrozenModel> frozen;
};

// How the text of a corpus becomes ids for a model: with its special tokens (tokens_of()), in the
// frame that begin_source and end_source of the options give it. The model keeps another frame than
// its own. INVALID_ARGUMENT names the option that the model cannot have.
PairEncoding training_encoding(Model& model, const std::optional<Tokenizer>& tokenizer,
                               const TrainOptions& options);

// Tokenises text for a model of `spec`, with the length limits of `options`. `train` may be null:
// the program gives the batches (TrainingRun::set_batches). `valid` may be null. UNSUPPORTED if
// subword sampling is on and the tokenizer has no other segmentations. CANCELLED.
TrainingData prepare_data(const TextCorpus* train, const TextCorpus* valid,
                          const PairEncoding& encoding, const ModelSpec& spec,
                          const TrainOptions& options, int num_threads,
                          const CancelToken* cancel = nullptr);
inline TrainingData prepare_data(const TextCorpus& train, const TextCorpus* valid,
                                 const PairEncoding& encoding, const ModelSpec& spec,
                                 const TrainOptions& options, int num_threads) {
  return prepare_data(&train, valid, encoding, spec, options, num_threads);
}

// The same for text in memory.
TrainingData prepare_data(const ParallelCorpus& train, const ParallelCorpus* valid,
                          const PairEncoding& encoding, const ModelSpec& spec,
                          const TrainOptions& options, int num_threads);

// INVALID_ARGUMENT if corpus form, vocabulary, lengths or metrics do not fit the model and options.
void check_data(const TrainingData& data, const ModelSpec& spec, const TrainOptions& options);

// INVALID_ARGUMENT if there is a frozen model with fewer positions than sentences may be long, or
// of another vocabulary than the tokenizer's.
void check_frozen_model(const TrainingData& data);

}  // namespace trafo
