// The function that training minimises. To add one, see docs/architecture.md.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "engine/models/model.h"

namespace trafo {

// Each is [1], stat_dtype of the model, summed over a batch and scaled. The loss alone is
// differentiated.
struct ObjectiveOutput {
  Tensor loss;
  Tensor nll;                        // negative log-likelihood of the labels
  std::vector<Tensor> metrics = {};  // in the order of Objective::metrics()
};

class Objective {
 public:
  virtual ~Objective() = default;

  // Runs the model over `batch`, as often as the objective needs, and returns the loss times
  // `scale`. If it is_linear(), an accelerator has one by units() in the batch's target weights and
  // a scale of 1, because a graph keeps its scale. Otherwise the loss is also multiplied by
  // Batch::loss_scale, where that is defined.
  //
  // With dropout.training, backward() follows from the loss alone and with an upstream gradient of
  // one: linear_cross_entropy computes gradients already here. An objective that goes on computing
  // with losses of labels takes them from ops::cross_entropy(), as Dpo does: Model::logits() has no
  // dropout.
  virtual ObjectiveOutput loss(Context& context, const Model& model, const Batch& batch,
                               const DropoutPass& dropout, double scale = 1) const = 0;

  // The names of further numbers that loss() computes: a-z, 0-9 and '-'. Events report their
  // means per unit.
  virtual std::span<const char* const> metrics() const { return {}; }

  // Makes what is reported of their means per unit, in the order of metrics().
  virtual void report(std::span<double> /*means*/) const {}

  // The number that the loss of an update is divided by, summed over its batches: the mean is what
  // the weights follow and what events report. `labels`: the sum of a batch's target weights, by
  // which the reported nll is divided.
  virtual double units(double labels, [[maybe_unused]] int64_t sentences) const { return labels; }

  // Whether loss() is linear in the batch's target weights.
  virtual bool is_linear() const { return true; }
  // Whether it learns from preference pairs: Batch::target_sentences is defined, and sentences
  // 2i and 2i + 1 are the chosen and the rejected answer of pair i or, if answers_apart() of the
  // registry says so, a labelled answer and another one (BatchPacker::add_labelled).
  virtual bool needs_preferences() const { return false; }
  // INVALID_ARGUMENT if this model cannot be trained so.
  virtual void check(const Model& /*model*/) const {}

  // Another model that loss() runs, frozen; null: none. It belongs to the objective. Batches must
  // fit it as well.
  virtual const Model* other_model() const { return nullptr; }
};

// The place of a metric in Objective::metrics(); none: it has no such metric.
inline std::optional<size_t> metric_index(const Objective& objective, std::string_view name) {
  const auto names = objective.metrics();
  for (size_t i = 0; i < names.size(); ++i)
    if (name == names[i]) return i;
  return std::nullopt;
}

}  // namespace trafo
