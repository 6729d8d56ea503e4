// A model of a few thousand weights and a corpus of copies, for tests of the trainer.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/core/numeric/philox.h"
#include "engine/ops/op_kernel.h"
#include "engine/train/run/run.h"
#include "tests/support/model_forms.h"
#include "tests/support/optimizer_kinds.h"
#include "tests/support/temporary_directory.h"

namespace trafo::testing {

inline constexpr SpecialTokens kTokens{.bos = 1, .eos = 2, .pad = 3, .unk = 0};

// The target of every sentence is its source.
inline std::shared_ptr<const TokenizedCorpus> copy_corpus(Architecture architecture,
                                                          int64_t sentences, uint64_t seed,
                                                          int32_t batch_tokens = 40,
                                                          int32_t vocabulary = kVocabulary) {
  PhiloxStream random(seed, 7);
  std::vector<int32_t> ids;
  std::vector<int64_t> offsets{0};
  for (int64_t i = 0; i < sentences; ++i) {
    const uint32_t length = 1 + random.next_u32() % 8;
    for (uint32_t j = 0; j < length; ++j)
      ids.push_back(static_cast<int32_t>(4 + random.next_u32() % (kVocabulary - 4)));
    offsets.push_back(static_cast<int64_t>(ids.size()));
  }
  const TokenizedCorpusOptions options{.form = architecture == Architecture::decoder_lm
                                                   ? SequenceForm::decoder_only
                                                   : SequenceForm::encoder_decoder,
                                       .max_length = 32,
                                       .batch_tokens = batch_tokens};
  return std::make_shared<TokenizedCorpus>(ids, offsets, ids, offsets, vocabulary, kTokens.eos,
                                           options);
}

// The first batches of such a corpus.
inline std::vector<PackedBatchHost> copy_batches(Architecture architecture, size_t count) {
  const auto corpus = copy_corpus(architecture, 60, 1);
  BatcherOptions options;
  options.start_id = kTokens.bos;
  Batcher batcher(*corpus, options);
  std::vector<PackedBatchHost> batches(count);
  for (PackedBatchHost& batch : batches) batcher.next(batch);
  return batches;
}

inline TrainingData copy_data(Architecture architecture = Architecture::encoder_decoder,
                              int64_t sentences = 60, int32_t vocabulary = kVocabulary) {
  TrainingData data;
  data.train = copy_corpus(architecture, sentences, 1, 40, vocabulary);
  data.valid = copy_corpus(architecture, 20, 2, 40, vocabulary);
  data.tokens = kTokens;
  return data;
}

inline int64_t target_tokens(const TrainingData& data) {
  return dynamic_cast<const TokenizedCorpus&>(*data.train).target_tokens();
}

inline TrainOptions quick_options() {
  TrainOptions options;
  options.learning_rate = 3e-3;
  options.warmup = 5;
  options.batch_tokens = 40;
  options.max_length = 32;
  options.seed = 42;
  options.log_freq = {4, PeriodUnit::updates};
  options.valid_freq = {7, PeriodUnit::updates};
  options.save_freq = {5, PeriodUnit::updates};
  options.valid_metrics = {"ce-mean-words"};
  options.autotune_gemm = false;  // two runs that measure may choose different kernels
  return options;
}

inline std::vector<std::byte> bytes_of(Context& context, const Tensor& tensor) {
  std::vector<std::byte> bytes(tensor.bytes());
  context.to_host(tensor.detach(), bytes.data(), bytes.size());
  return bytes;
}

inline std::vector<std::byte> weight_bytes(Context& context, const Model& model) {
  return bytes_of(context, model.parameters().flat());
}

// Everything that a process has: made anew, it knows nothing but what is in the run directory.
struct Process {
  std::unique_ptr<Context> context;
  std::unique_ptr<Model> model;
  std::unique_ptr<TrainingRun> run;

  Process(const TrainingData& data, const TrainOptions& options,
          const std::optional<std::filesystem::path>& directory = std::nullopt, int threads = 1,
          const ModelConfig& config = tiny_config(), uint64_t model_seed = 5)
      : context(make_context({DeviceKind::cpu, 0}, threads)),
        model(make_model(*context, config, model_seed)),
        run(std::make_unique<TrainingRun>(*context, *model, data, options, directory)) {}

  std::vector<std::byte> weights() const { return weight_bytes(*context, *model); }
};

// The state without what depends on the clock.
inline std::string timeless(const RunState& state) {
  RunState copy = state;
  copy.train_seconds = 0;
  RunIdentity identity;
  identity.options = "{}";
  return encode_state(copy, identity);
}

// The end of an uninterrupted run of `updates` updates. It has no directory: saving must not change
// anything either.
struct Reference {
  std::vector<std::byte> weights;
  std::string state;
};

inline Reference uncut(const TrainingData& data, TrainOptions options, int64_t updates,
                       int threads = 1, const ModelConfig& config = tiny_config()) {
  options.after_updates = updates;
  Process process(data, options, std::nullopt, threads, config);
  EXPECT_EQ(process.run->run().reason, StopReason::limit);
  return {process.weights(), timeless(process.run->state())};
}

}  // namespace trafo::testing
