#include "engine/train/step/weight_pruning.h"

#include <algorithm>

#include "engine/core/argument_error.h"
#include "engine/nn/sparsity.h"
#include "engine/train/step/prune_schedule.h"

namespace trafo {
namespace {

constexpr const char* kWeightPruningOrigin = "trainer";

int64_t last_pruning(const TrainOptions& options) {
  return std::max(options.prune_start, options.prune_end);
}

bool is_pruned(const ParameterStore& parameters, ParamId id) {
  return parameters.prunable(id) && parameters.trainable(id);
}

}  // namespace

bool prunes_before(const TrainOptions& options, int64_t update) {
  const int64_t last = last_pruning(options);
  if (options.prune_sparsity == 0 || update < options.prune_start || update > last) return false;
  return update == last || (update - options.prune_start) % options.prune_every == 0;
}

bool prunes_after(const TrainOptions& options, int64_t update) {
  return options.prune_sparsity > 0 && update < last_pruning(options);
}

double scheduled_sparsity(const TrainOptions& options, int64_t update) {
  const int64_t last = last_pruning(options);
  if (update >= last) return options.prune_sparsity;
  const double rest =
      static_cast<double>(last - update) / static_cast<double>(last - options.prune_start);
  return options.prune_sparsity * (1 - rest * rest * rest);
}

std::unique_ptr<WeightPruning> WeightPruning::make(Context& context, ParameterStore& parameters,
                                                   const Optimizer& optimizer,
                                                   const TrainOptions& options) {
  if (options.prune_sparsity == 0 && !options.keep_zeros) return nullptr;
  std::vector<ElementRange> matrices;
  for (size_t i = 0; i < parameters.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    if (!is_pruned(parameters, id)) continue;
    const int64_t begin = parameters.offset(id);
    matrices.push_back({begin, begin + element_count(parameters.shape(id))});
  }
  require_argument(!matrices.empty(), kWeightPruningOrigin,
                   options.keep_zeros ? "keep_zeros" : "prune_sparsity",
                   ": every linear layer is frozen, there is no weight to prune");
  return std::unique_ptr<WeightPruning>(
      new WeightPruning(context, parameters, optimizer, options, matrices));
}

WeightPruning::WeightPruning(Context& context, ParameterStore& parameters,
                             const Optimizer& optimizer, const TrainOptions& options,
                             const std::vector<ElementRange>& matrices)
    : context_(context),
      parameters_(parameters),
      options_(options),
      weights_(context, optimizer, matrices) {}

bool WeightPruning::is_due(int64_t earliest, int64_t latest) const {
  for (int64_t update = earliest; update <= latest; ++update)
    if (prunes_before(options_, update)) return true;
  return false;
}

void WeightPruning::prune_before(int64_t update) {
  if (!prunes_before(options_, update)) return;
  const PhaseRange phase(context_, "prune", true);
  const double sparsity = scheduled_sparsity(options_, update);
  for (size_t i = 0; i < parameters_.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    if (is_pruned(parameters_, id)) nn::prune_by_magnitude(context_, parameters_, id, sparsity);
  }
  weights_.mask_states();
}

}  // namespace trafo
