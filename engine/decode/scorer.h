// Log-probabilities of given translations.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "engine/decode/options.h"
#include "engine/decode/packing.h"
#include "engine/models/model.h"
#include "engine/runtime/context.h"

namespace trafo {

struct ScoreOptions {
  int64_t batch_tokens = 4096;  // decoder tokens of the pairs that are scored together
  SpecialTokens tokens;
  std::function<bool()> cancelled;  // asked before every batch; true ends the call with CANCELLED
};

struct PairScore {
  double log_probability = 0;  // natural, of all target tokens, eos included
  int64_t tokens = 0;          // of the target, eos counted
};

// Of each pair, in the order of the pairs. As with translate, the model is only read and nothing is
// recorded. INVALID_ARGUMENT, naming the pair (counted from 1): a side that is empty, does not end
// with eos, or is too long.
std::vector<PairScore> score(Context& context, const Model& model,
                             std::span<const SentencePair> pairs, const ScoreOptions& options = {});

}  // namespace trafo
