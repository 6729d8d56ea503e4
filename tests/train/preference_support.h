// Preference pairs of copies, for tests of DPO, ORPO and KTO: the chosen answer copies the prompt,
// the rejected one does not.
#pragma once

#include "engine/objective/frozen_model.h"
#include "tests/train/training_support.h"

namespace trafo::testing {

inline std::shared_ptr<const TokenizedCorpus> preference_corpus(Architecture architecture,
                                                                int64_t pairs, uint64_t seed,
                                                                bool answers_apart = false) {
  PhiloxStream random(seed, 8);
  std::vector<int32_t> prompts, rejected;
  std::vector<int64_t> prompt_ends{0}, rejected_ends{0};
  const auto append = [&random](std::vector<int32_t>& ids, std::vector<int64_t>& ends) {
    const uint32_t length = 1 + random.next_u32() % 6;
    for (uint32_t i = 0; i < length; ++i)
      ids.push_back(static_cast<int32_t>(4 + random.next_u32() % (kVocabulary - 4)));
    ends.push_back(static_cast<int64_t>(ids.size()));
  };
  for (int64_t i = 0; i < pairs; ++i) {
    append(prompts, prompt_ends);
    append(rejected, rejected_ends);
  }
  const TokenizedCorpusOptions options{.form = architecture == Architecture::decoder_lm
                                                   ? SequenceForm::decoder_only
                                                   : SequenceForm::encoder_decoder,
                                       .max_length = 32,
                                       .batch_tokens = 80,
                                       .answers_apart = answers_apart};
  return std::make_shared<TokenizedCorpus>(prompts, prompt_ends, prompts, prompt_ends, kVocabulary,
                                           kTokens.eos, options, rejected, rejected_ends);
}

inline std::vector<PackedBatchHost> preference_batches(Architecture architecture, size_t count,
                                                       bool answers_apart = false) {
  const auto corpus = preference_corpus(architecture, 60, 1, answers_apart);
  BatcherOptions options;
  options.start_id = kTokens.bos;
  Batcher batcher(*corpus, options);
  std::vector<PackedBatchHost> batches(count);
  for (PackedBatchHost& batch : batches) batcher.next(batch);
  return batches;
}

inline TrainingData preference_data(Architecture architecture, bool answers_apart = false) {
  TrainingData data;
  data.train = preference_corpus(architecture, 120, 1, answers_apart);
  data.valid = preference_corpus(architecture, 40, 2, answers_apart);
  data.tokens = kTokens;
  return data;
}

inline TrainOptions preference_options(ObjectiveKind objective) {
  TrainOptions options = quick_options();
  options.objective = objective;
  options.dpo_beta = options.orpo_beta = options.kto_beta = 0.5;
  options.batch_tokens = 80;
  options.valid_metrics = {"reward-accuracy", "reward-margin", "ce-mean-words"};
  return options;
}

inline TrainOptions dpo_options() {
  return preference_options(ObjectiveKind::dpo);
}

}  // namespace trafo::testing
