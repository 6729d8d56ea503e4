// The function that training minimises. To add one, see docs/architecture.md.
#pragma once

#include <cstdint>
#include <span>
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
  // `scale`. It is linear in the batch's target weights: an accelerator has one by units() in them,
  // and a scale of 1, because a graph keeps its scale.
  //
  // With dropout.training, backward() follows from the loss alone and with an upstream gradient of
  // one: linear_cross_entropy computes gradients already here. An objective that goes on computing
  // with losses of labels takes them from Model::logits() and ops::cross_entropy().
  virtual ObjectiveOutput loss(Context& context, const Model& model, const Batch& batch,
                               const DropoutPass& dropout, double scale = 1) const = 0;

  // The names of further numbers that loss() computes: letters, digits and '_'. Events report their
  // means per unit.
  virtual std::span<const char* const> metrics() const { return {}; }

  // The number that the loss of an update is divided by, summed over its batches: the mean is what
  // the weights follow and what events report. `labels`: the sum of a batch's target weights, by
  // which the reported nll is divided.
  virtual double units(double labels, [[maybe_unused]] int64_t sentences) const { return labels; }

  // Another model that loss() runs, frozen; null: none. It belongs to the objective. Batches must
  // fit it as well.
  virtual const Model* other_model() const { return nullptr; }
};

}  // namespace trafo
