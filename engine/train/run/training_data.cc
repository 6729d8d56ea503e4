#include "engine/train/run/training_data.h"

#include <algorithm>

#include "engine/core/argument_error.h"
#include "engine/core/status.h"
#include "engine/data/text_pairs.h"
#include "engine/metrics/registry.h"
#include "engine/models/model_io.h"
#include "engine/models/upload.h"
#include "engine/train/step/trainer.h"

namespace trafo {
namespace {

constexpr const char* kTrainingDataOrigin = "training data";

// With batch_fit the budget is chosen later and will have room for every pair.
constexpr int32_t kAnyBatch = 1 << 28;

void check_corpus(const PairSource& corpus, const char* name, const ModelSpec& spec,
                  const TrainOptions& options, bool needs_preferences) {
  require_argument(corpus.preferences() == needs_preferences, kTrainingDataOrigin, "objective",
                   " is ", enum_name(options.objective), ", and the ", name,
                   needs_preferences ? " corpus has no preference pairs"
                                     : " corpus is of preference pairs, which are for dpo");
  require(corpus.options().form == sequence_form(spec), ErrorCode::invalid_argument,
          kTrainingDataOrigin, "the ", name, " corpus was prepared for another architecture");
  require_argument(corpus.options().max_length <= spec.max_positions, kTrainingDataOrigin,
                   "max_length", " is ", corpus.options().max_length, " for the ", name,
                   " corpus, but the model has ", spec.max_positions,
                   " positions: set it to that at most, or give the model more");
}

}  // namespace

TrainingData prepare_data(const TextCorpus& train, const TextCorpus* valid,
                          const Tokenizer& tokenizer, const ModelSpec& spec,
                          const TrainOptions& options, int num_threads) {
  validate(options);
  for (const TextCorpus* corpus : {&train, valid})
    require(corpus == nullptr || !corpus->monolingual() || !spec.has_encoder(),
            ErrorCode::invalid_argument, kTrainingDataOrigin,
            "monolingual text trains a decoder-lm; an encoder-decoder needs pairs");
  for (const std::string& metric : options.valid_metrics)
    require(valid == nullptr || !valid->monolingual() ||
                !metric_named(metric, kTrainingDataOrigin).needs_translations(),
            ErrorCode::invalid_argument, kTrainingDataOrigin, "the metric ", metric,
            " translates, and monolingual text has no sources");
  TokenizedCorpusOptions lengths{
      .form = sequence_form(spec),
      .max_length = static_cast<int32_t>(options.max_length),
      // A pair must fit a batch, so that a small budget cannot be exceeded by one long pair.
      .batch_tokens = options.batch_fit ? kAnyBatch : static_cast<int32_t>(options.batch_tokens)};
  TrainingData data;
  TokenizedCorpusOptions filters = lengths;
  filters.max_length_ratio = options.max_length_ratio;
  filters.drop_identical = options.drop_identical;
  const SubwordSampling sampling{options.source_alpha, options.target_alpha, options.seed};
  if (sampling.source_alpha > 0 || sampling.target_alpha > 0 || train.is_large())
    data.train = std::make_shared<TextPairs>(train, tokenizer, filters, sampling, num_threads);
  else
    data.train = std::make_shared<TokenizedCorpus>(train, tokenizer, filters, num_threads);
  data.tokens = tokenizer.special_tokens();
  data.tokenizer = tokenizer;
  if (valid != nullptr) {
    data.valid = std::make_shared<TokenizedCorpus>(*valid, tokenizer, lengths, num_threads);
    PairBuffers buffers;
    for (int64_t i = 0; i < valid->size(); ++i) {
      const PairView pair = valid->view(i, buffers);
      data.valid_sources.emplace_back(pair.source);
      data.valid_references.emplace_back(pair.target);
      data.valid_lines.push_back(valid->line(i));
    }
    data.valid_line_count = valid->lines();
  }
  check_data(data, spec, options);
  return data;
}

TrainingData prepare_data(const ParallelCorpus& train, const ParallelCorpus* valid,
                          const Tokenizer& tokenizer, const ModelSpec& spec,
                          const TrainOptions& options, int num_threads) {
  if (valid == nullptr)
    return prepare_data(TextCorpus(train), static_cast<const TextCorpus*>(nullptr), tokenizer, spec,
                        options, num_threads);
  const TextCorpus validation(*valid);
  return prepare_data(TextCorpus(train), &validation, tokenizer, spec, options, num_threads);
}

void check_data(const TrainingData& data, const ModelSpec& spec, const TrainOptions& options) {
  require(data.train != nullptr, ErrorCode::invalid_argument, kTrainingDataOrigin,
          "there is no training corpus");
  const auto objective = make_objective(options, data.frozen);
  const bool preferences = objective->needs_preferences();
  check_corpus(*data.train, "training", spec, options, preferences);
  if (data.tokenizer)
    require(data.tokenizer->vocab_size() == spec.vocabulary, ErrorCode::invalid_argument,
            kTrainingDataOrigin, "the tokenizer has ", data.tokenizer->vocab_size(),
            " subwords, the model ", spec.vocabulary);
  const auto check_token = [&](const char* name, int32_t id) {
    require(id >= 0 && id < spec.vocabulary, ErrorCode::invalid_argument, kTrainingDataOrigin,
            "the ", name, " token is ", id, ", it must be 0 to ", spec.vocabulary - 1);
  };
  check_token("eos", data.tokens.eos);
  if (spec.has_encoder()) check_token("bos", data.tokens.start());
  require(data.valid_sources.size() == data.valid_references.size(), ErrorCode::invalid_argument,
          kTrainingDataOrigin, "there are ", data.valid_sources.size(), " validation sources and ",
          data.valid_references.size(), " references");
  if (data.valid == nullptr) return;
  check_corpus(*data.valid, "validation", spec, options, preferences);
  for (const std::string& metric : options.valid_metrics)
    require(!metric_named(metric, kTrainingDataOrigin).needs_translations() ||
                (data.tokenizer && !data.valid_sources.empty()),
            ErrorCode::invalid_argument, kTrainingDataOrigin, "the metric ", metric,
            " needs a tokenizer and the validation sentences as text");
  for (const std::string& metric : options.valid_metrics)
    require_argument(metric_named(metric, kTrainingDataOrigin).needs != MetricNeeds::objective ||
                         metric_index(*objective, metric).has_value(),
                     kTrainingDataOrigin, "valid_metrics", " has ", metric,
                     ", which the objective ", enum_name(options.objective), " does not compute");
}

void check_frozen_model(const TrainingData& data) {
  if (!data.frozen) return;
  const Model& frozen = *data.frozen->model;
  const int64_t max_length = data.train->options().max_length;
  require_argument(max_length <= frozen.spec().max_positions, kTrainingDataOrigin, "max_length",
                   " is ", max_length, ", but the ", role_name(data.frozen->role), " ",
                   frozen.origin().file, " has ", frozen.spec().max_positions,
                   " positions: set it to that at most");
  if (data.tokenizer) require_same_vocabulary(*data.frozen, vocabulary_checksum(*data.tokenizer));
}

}  // namespace trafo
