// Scoring: log-probabilities of given translations.
#pragma once

#include <span>
#include <vector>

#include "engine/decode/options.h"
#include "engine/decode/packing.h"
#include "engine/models/model.h"
#include "engine/runtime/context.h"

namespace trafo {

struct ScoreOptions {
  int64_t batch_tokens = 4096;  // decoder tokens of the pairs of a batch
  SpecialTokens tokens;
  bool ended = true;  // false: sides need not end with eos; a decoder_lm scores plain text so
  const CancelToken* cancel = nullptr;  // checked before every batch: CANCELLED
};

struct PairScore {
  double log_probability = 0;  // natural logarithm, summed over the target, eos included
  int64_t tokens = 0;          // target tokens, eos counted
  // Of each target token, the natural logarithm; they sum to log_probability.
  std::vector<double> word_scores = {};
};

// INVALID_ARGUMENT, naming the pair (counted from 1): a side is empty, does not end with eos, has a
// token outside the vocabulary, or is too long. `ended`: as in ScoreOptions.
void check_pairs(const char* origin, const ModelSpec& spec, const SpecialTokens& tokens,
                 std::span<const SentencePair> pairs, bool ended = true);

// The negative log-likelihood of each label of `batch` without dropout and weights: [Tt],
// stat_dtype of the model, 0 where the label is `ignore_label`. All logits [Tt, V] are held at
// once.
Tensor label_nll(Context& context, const Model& model, const Batch& batch, int32_t ignore_label);

// The scores of the pairs, in their order. The model is only read and nothing is recorded.
// INVALID_ARGUMENT: of check_pairs. NON_FINITE: a log-probability is not finite. CANCELLED.
std::vector<PairScore> score(Context& context, const Model& model,
                             std::span<const SentencePair> pairs, const ScoreOptions& options = {});

}  // namespace trafo
