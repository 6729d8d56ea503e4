#include "engine/train/run/training_data.h"

#include <algorithm>

#include "engine/core/argument_error.h"
#include "engine/core/cancel.h"
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

// The sizes of the batches that a program gives, for the memory plan: rows of the longest length
// that fill a batch.
class GivenBatches final : public PairSource {
 public:
  explicit GivenBatches(const TokenizedCorpusOptions& options) {
    check_options(options);
    options_ = options;
    const int32_t length = std::min(options.max_length, options.batch_tokens);
    draws_ = options.batch_tokens / length;
    // A stream of source and target has one token less than both.
    row_.resize(static_cast<size_t>(length));
    source_.resize(options.form == SequenceForm::decoder_only ? 1 : row_.size());
  }
  int64_t draws(int64_t) const override { return draws_; }
  void read(std::span<const uint32_t> draws, int64_t, PairBlock& block,
            const std::atomic<bool>*) const override {
    for (const uint32_t draw : draws) {
      block.ids.push_back(draw);
      block.tokens.push_back({source_, row_});
    }
  }
  bool has_pairs() const noexcept override { return false; }

 private:
  int64_t draws_ = 0;
  std::vector<int32_t> source_, row_;
};

void check_corpus(const PairSource& corpus, const char* name, const ModelSpec& spec,
                  const TrainOptions& options) {
  const bool wanted = needs_preferences(options.objective);
  const bool labelled = corpus.labelled();
  require_argument(
      corpus.preferences() == wanted && (!labelled || answers_apart(options.objective)),
      kTrainingDataOrigin, "objective", " is ", enum_name(options.objective), ", and the ", name,
      wanted && !labelled
          ? " corpus has no preference pairs"
          : concat(" corpus is of ", labelled ? "labelled answers" : "preference pairs",
                   ", which are for ", preference_objectives(labelled)));
  require(corpus.options().form == sequence_form(spec), ErrorCode::invalid_argument,
          kTrainingDataOrigin, "the ", name, " corpus was prepared for another architecture");
  require_argument(corpus.options().max_length <= spec.max_positions, kTrainingDataOrigin,
                   "max_length", " is ", corpus.options().max_length, " for the ", name,
                   " corpus, but the model has ", spec.max_positions,
                   " positions: set it to that at most, or give the model more");
}

// What an encoder learns from: texts with labels, or plain text.
void check_forms(const ModelSpec& spec, const TextCorpus* train, const TextCorpus* valid) {
  if (spec.architecture != Architecture::encoder) return;
  require(train != nullptr, ErrorCode::unsupported, kTrainingDataOrigin,
          "an encoder learns from a corpus; a program that gives batches has no labels in them");
  const bool masked = sequence_form(spec) == SequenceForm::masked;
  for (const TextCorpus* corpus : {train, valid}) {
    if (corpus == nullptr) continue;
    require(!corpus->has_chats() && corpus->monolingual() == masked, ErrorCode::invalid_argument,
            kTrainingDataOrigin,
            masked ? "an encoder with the head masked-lm learns from plain text, a text a line"
                   : "an encoder learns from texts with labels: pairs of a text and its label, or "
                     "of a text and the labels of its words");
  }
}

// The mask token is [MASK] or <mask>.
TokenMasking masking_of(const PairEncoding& encoding, const ModelSpec& spec,
                        const TrainOptions& options) {
  require(encoding.tokenizer.has_value(), ErrorCode::unsupported, kTrainingDataOrigin,
          "masked tokens need a tokenizer, which has the mask token");
  const Tokenizer& tokenizer = *encoding.tokenizer;
  TokenMasking masking{.probability = options.mask_probability, .vocabulary = spec.vocabulary};
  for (const char* name : {"[MASK]", "<mask>"})
    if (const int32_t id = tokenizer.id(name); id != tokenizer.unk_id()) masking.mask = id;
  require(masking.mask >= 0, ErrorCode::invalid_argument, kTrainingDataOrigin,
          "the vocabulary has no mask token, [MASK] or <mask>");
  const SpecialTokens& special = encoding.tokens.special;
  for (const int32_t id : {special.bos, special.eos, special.pad, special.unk, masking.mask})
    if (id >= 0) masking.kept.push_back(id);
  return masking;
}

}  // namespace

PairEncoding training_encoding(Model& model, const std::optional<Tokenizer>& tokenizer,
                               const TrainOptions& options) {
  validate(options);
  PairEncoding encoding(tokens_of(model, tokenizer), model.spec().vocabulary);
  encoding.source_vocabulary = model.spec().source_vocabulary();
  encoding.chat_loss = options.chat_loss;
  encoding.labels = {model.labels(), model.spec().head.kind == EncoderHead::token};
  if (tokenizer) {
    encoding.tokenizer = tokenizer;
    encoding.vocabulary = tokenizer->vocab_size();
    encoding.source_vocabulary = tokenizer->source_vocab_size();
  }
  TextFrame& frame = encoding.tokens.frame;
  const TextFrame before = frame;
  const auto choose = [&](FrameToken wanted, bool& there, bool possible, const char* name) {
    if (wanted == FrameToken::by_model) return;
    there = wanted == FrameToken::on;
    require_argument(possible, kTrainingDataOrigin, name, " is ", enum_name(wanted),
                     ", which only a decoder-lm whose vocabulary has bos can be");
  };
  const bool has_encoder = model.spec().has_encoder();
  choose(
      options.begin_source, frame.begin,
      options.begin_source != FrameToken::on || (!has_encoder && encoding.tokens.special.bos >= 0),
      "begin_source");
  choose(options.end_source, frame.end, options.end_source != FrameToken::off || !has_encoder,
         "end_source");
  if (frame != before) model.set_tokens(encoding.tokens);
  return encoding;
}

TrainingData prepare_data(const TextCorpus* train, const TextCorpus* valid,
                          const PairEncoding& encoding, const ModelSpec& spec,
                          const TrainOptions& options, int num_threads, const CancelToken* cancel) {
  validate(options);
  require_argument(train != nullptr || !options.batch_fit, kTrainingDataOrigin, "batch_fit",
                   " needs a training corpus; a program that gives batches chooses their sizes");
  check_forms(spec, train, valid);
  for (const TextCorpus* corpus : {train, valid})
    require(corpus == nullptr || !spec.has_encoder() ||
                (!corpus->monolingual() && !corpus->has_chats()),
            ErrorCode::invalid_argument, kTrainingDataOrigin,
            corpus != nullptr && corpus->has_chats()
                ? "conversations train a decoder-lm; an encoder-decoder needs pairs"
                : "monolingual text trains a decoder-lm; an encoder-decoder needs pairs");
  const bool cuts = options.long_lines == LongLines::window;
  require_argument(!cuts || sequence_form(spec) == SequenceForm::decoder_only, kTrainingDataOrigin,
                   "long_lines",
                   " is window, which is for a decoder-lm; other models need whole texts");
  require_argument(!cuts || train == nullptr || train->monolingual(), kTrainingDataOrigin,
                   "long_lines",
                   " is window, which is for text without a source; the training corpus has pairs");
  require_argument(!cuts || train == nullptr || !train->has_chats(), kTrainingDataOrigin,
                   "long_lines",
                   " is window, which is for text; the training corpus has "
                   "conversations, which are read whole");
  for (const std::string& metric : options.valid_metrics)
    require(valid == nullptr || (!valid->monolingual() && !valid->has_chats()) ||
                !metric_named(metric, kTrainingDataOrigin).needs_translations(),
            ErrorCode::invalid_argument, kTrainingDataOrigin, "the metric ", metric,
            " translates, and ",
            valid != nullptr && valid->has_chats() ? "conversations have" : "monolingual text has",
            " no sources");
  TokenizedCorpusOptions lengths{
      .form = sequence_form(spec),
      .max_length = static_cast<int32_t>(options.max_length),
      // A pair must fit a batch, so that a small budget cannot be exceeded by one long pair.
      .batch_tokens = options.batch_fit ? kAnyBatch : static_cast<int32_t>(options.batch_tokens),
      .answers_apart = answers_apart(options.objective)};
  if (lengths.form == SequenceForm::masked) lengths.masking = masking_of(encoding, spec, options);
  TrainingData data;
  TokenizedCorpusOptions filters = lengths;
  filters.max_length_ratio = options.max_length_ratio;
  filters.drop_identical = options.drop_identical;
  if (cuts)
    filters.window_stride = static_cast<int32_t>(options.window_stride > 0 ? options.window_stride
                                                                           : options.max_length);
  const SubwordSampling sampling{options.source_alpha, options.target_alpha, options.seed};
  const bool samples = sampling.source_alpha > 0 || sampling.target_alpha > 0;
  require(!samples || train == nullptr || !train->has_ids(), ErrorCode::invalid_argument,
          kTrainingDataOrigin, "subwords are sampled from text, and the corpus has token ids");
  if (train == nullptr)
    data.train = std::make_shared<GivenBatches>(filters);
  else if (samples || train->is_large())
    data.train = std::make_shared<TextPairs>(*train, encoding, filters, sampling, num_threads);
  else
    data.train = std::make_shared<TokenizedCorpus>(*train, encoding, filters, num_threads, cancel);
  data.tokens = encoding.tokens.special;
  data.tokenizer = encoding.tokenizer;
  if (valid != nullptr) {
    lengths.purpose = "validate with";
    if (valid->monolingual() && !valid->has_chats()) lengths.window_stride = filters.window_stride;
    data.valid = std::make_shared<TokenizedCorpus>(*valid, encoding, lengths, num_threads, cancel);
    PairBuffers buffers;
    for (int64_t i = 0; i < valid->size() && !valid->has_ids(); ++i) {
      stop_if_cancelled(cancel, kTrainingDataOrigin);
      const PairView pair = valid->view(i, buffers);
      data.valid_sources.emplace_back(pair.source);
      data.valid_references.emplace_back(pair.target);
      data.valid_lines.push_back(valid->line(i));
    }
    if (!valid->has_ids()) data.valid_line_count = valid->lines();
  }
  check_data(data, spec, options);
  return data;
}

TrainingData prepare_data(const ParallelCorpus& train, const ParallelCorpus* valid,
                          const PairEncoding& encoding, const ModelSpec& spec,
                          const TrainOptions& options, int num_threads) {
  const TextCorpus training(train);
  if (valid == nullptr)
    return prepare_data(&training, nullptr, encoding, spec, options, num_threads);
  const TextCorpus validation(*valid);
  return prepare_data(&training, &validation, encoding, spec, options, num_threads);
}

void check_data(const TrainingData& data, const ModelSpec& spec, const TrainOptions& options) {
  require(data.train != nullptr, ErrorCode::invalid_argument, kTrainingDataOrigin,
          "there is no training corpus");
  const auto objective = make_objective(options, data.frozen);
  check_corpus(*data.train, "training", spec, options);
  if (data.tokenizer) require_vocabulary_size(kTrainingDataOrigin, spec, *data.tokenizer);
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
  check_corpus(*data.valid, "validation", spec, options);
  for (const std::string& metric : options.valid_metrics)
    require(!metric_named(metric, kTrainingDataOrigin).needs_translations() ||
                (data.tokenizer && !data.valid_sources.empty()),
            ErrorCode::invalid_argument, kTrainingDataOrigin, "the metric ", metric,
            " needs a tokenizer and the validation sentences as text");
  for (const std::string& metric : options.valid_metrics)
    require_argument(spec.architecture != Architecture::encoder ||
                         !metric_named(metric, kTrainingDataOrigin).needs_translations(),
                     kTrainingDataOrigin, "valid_metrics", " has ", metric,
                     ", which is of generated texts; the model is an encoder");
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
