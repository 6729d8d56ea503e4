// Direct Preference Optimization (Rafailov et al., arXiv 2305.18290): learns from pairs of answers
// to a prompt, of which one was preferred, without a reward model.
//
// The reward of an answer y to the prompt x is beta (log p(y | x) - log r(y | x)), with the model p
// and the reference r. The loss of a pair is -log sigmoid(chosen reward - rejected reward): the
// cross-entropy of choosing between the two rewards. With label smoothing e it is
// -(1 - e) log sigmoid(d) - e log sigmoid(-d) with d the difference of the rewards: conservative
// DPO, for pairs of which a share e is labelled the wrong way.
#pragma once

#include <memory>

#include "engine/objective/frozen_model.h"
#include "engine/objective/objective.h"

namespace trafo {

struct DpoOptions {
  double beta = 0.1;           // above 0: how much it costs to leave the reference
  double label_smoothing = 0;  // 0 <= e < 0.5
};

// The batches are of preference pairs (Batcher). The loss is a sum over pairs, nll a sum over the
// labels of all answers. The logits of a batch are in memory at once.
class Dpo final : public Objective {
 public:
  // Without a reference it is the model without its adapter.
  Dpo(const DpoOptions& options, std::shared_ptr<const FrozenModel> reference)
      : options_(options), reference_(std::move(reference)) {}

  // INVALID_ARGUMENT: a batch without preference pairs. UNSUPPORTED: int8 weights.
  ObjectiveOutput loss(Context& context, const Model& model, const Batch& batch,
                       const DropoutPass& dropout, double scale = 1) const override;
  double units(double, int64_t sentences) const override {
    return static_cast<double>(sentences) / 2;
  }
  // Means over pairs: rewards, their difference, and the share of pairs whose chosen answer has the
  // higher one.
  std::span<const char* const> metrics() const override;
  bool is_linear() const override { return false; }
  bool needs_preferences() const override { return true; }
  void check(const Model& model) const override;
  const Model* other_model() const override {
    return reference_ ? reference_->model.get() : nullptr;
  }

 private:
  DpoOptions options_;
  std::shared_ptr<const FrozenModel> reference_;
};

}  // namespace trafo
