// Kahneman-Tversky Optimization (Ethayarajh et al., arXiv 2402.01306): learns from answers of which
// each was judged alone, desirable or not.
//
// The reward of an answer y to the prompt x is beta (log p(y | x) - log r(y | x)), with the model p
// and the reference r. z is beta KL: the mean of that over the answers of the batch, each to the
// prompt of another row, but at least 0. It is not differentiated. The loss of a row is
//   desirable_weight (1 - sigmoid(reward - z)) or undesirable_weight (1 - sigmoid(z - reward)).
#pragma once

#include <memory>

#include "engine/objective/frozen_model.h"
#include "engine/objective/objective.h"

namespace trafo {

struct KtoOptions {
  double beta = 0.1;  // above 0: how much it costs to leave the reference
  double desirable_weight = 1, undesirable_weight = 1;
};

// A row of a batch is a preference pair of which one answer is its own and the other one is of
// another row, without weights (Batcher, with TokenizedCorpusOptions::answers_apart). The loss is a
// sum over rows, nll a sum over the labels of their own answers. The logits of a batch are in
// memory at once.
class Kto final : public Objective {
 public:
  // Without a reference it is the model without its adapter.
  Kto(const KtoOptions& options, std::shared_ptr<const FrozenModel> reference)
      : options_(options), reference_(std::move(reference)) {}

  // INVALID_ARGUMENT: a batch without such rows. UNSUPPORTED: int8 weights.
  ObjectiveOutput loss(Context& context, const Model& model, const Batch& batch,
                       const DropoutPass& dropout, double scale = 1) const override;
  double units(double, int64_t sentences) const override {
    return static_cast<double>(sentences) / 2;
  }
  // chosen-reward is the mean over desirable rows, rejected-reward over the others, not a number if
  // there are none, and reward-margin their difference. Means over all rows: desirable-share, kl,
  // and reward-accuracy, the share of rows whose reward is above z if they are desirable and below
  // it if not.
  std::span<const char* const> metrics() const override;
  void report(std::span<double> means) const override;
  bool is_linear() const override { return false; }
  bool needs_preferences() const override { return true; }
  void check(const Model& model) const override;
  const Model* other_model() const override {
    return reference_ ? reference_->model.get() : nullptr;
  }

 private:
  KtoOptions options_;
  std::shared_ptr<const FrozenModel> reference_;
};

}  // namespace trafo
