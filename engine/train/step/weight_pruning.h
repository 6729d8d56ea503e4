// Unstructured pruning while a model is trained.
#pragma once

#include <memory>

#include "engine/nn/parameter_store.h"
#include "engine/optim/pruned_weights.h"
#include "engine/train/run/options.h"

namespace trafo {

class WeightPruning {
 public:
  // Null if the options neither prune nor keep zeros. INVALID_ARGUMENT: every linear layer is
  // frozen. Context, parameters and optimizer must outlive it.
  static std::unique_ptr<WeightPruning> make(Context& context, ParameterStore& parameters,
                                             const Optimizer& optimizer,
                                             const TrainOptions& options);

  // Whether weights are pruned before one of these updates.
  bool is_due(int64_t earliest, int64_t latest) const;
  // Prunes if the schedule says so. All ranks have the same weights and prune them alike. Pruning
  // again, after an update that was skipped or failed, changes nothing: the weights of least
  // magnitude are then the zeros.
  void prune_before(int64_t update);
  // Before the norm of an update.
  void mask_gradient() const { weights_.mask_gradient(); }
  int64_t bytes() const { return weights_.bytes(); }

 private:
  WeightPruning(Context& context, ParameterStore& parameters, const Optimizer& optimizer,
                const TrainOptions& options, const std::vector<ElementRange>& matrices);

  Context& context_;
  ParameterStore& parameters_;
  TrainOptions options_;
  PrunedWeights weights_;
};

}  // namespace trafo
