// Odds Ratio Preference Optimization (Hong et al., arXiv 2403.07691): learns the chosen answers
// and, at the same time, to prefer them. It needs no reference.
//
// For an answer y of m tokens to the prompt x, log P = (1 / m) sum of the log-probabilities of its
// tokens, and odds = P / (1 - P). The loss of a pair is
//   nll - beta log sigmoid(log odds of the chosen answer - log odds of the rejected one),
// where nll is the mean negative log-likelihood of the tokens of the chosen sequence: in a
// decoder-lm prompt and answer, as in the program of the authors and in trl; otherwise the answer.
// trl takes the mean of nll over the tokens of a device's batch. Here it is over the tokens of each
// pair, so that an update does not depend on its micro-batches: equal for one pair a batch.
#pragma once

#include "engine/objective/objective.h"

namespace trafo {

struct OrpoOptions {
  double beta = 0.1;  // above 0: how much the odds ratio counts beside the likelihood
};

// The batches are of preference pairs (Batcher). The loss is a sum over pairs, nll a sum over the
// labels of all answers. The logits of a batch are in memory at once.
class Orpo final : public Objective {
 public:
  explicit Orpo(const OrpoOptions& options) : options_(options) {}

  // INVALID_ARGUMENT: a batch without preference pairs. UNSUPPORTED: int8 weights.
  ObjectiveOutput loss(Context& context, const Model& model, const Batch& batch,
                       const DropoutPass& dropout, double scale = 1) const override;
  double units(double, int64_t sentences) const override {
    return static_cast<double>(sentences) / 2;
  }
  // Means over pairs. The reward of an answer is beta log P; log-odds is the difference of the
  // log odds.
  std::span<const char* const> metrics() const override;
  bool is_linear() const override { return false; }
  bool needs_preferences() const override { return true; }

 private:
  OrpoOptions options_;
};

}  // namespace trafo
