// Trainer: unstructured pruning on the way.
#include <algorithm>

#include "engine/core/argument_error.h"
#include "engine/nn/sparsity.h"
#include "engine/train/step/prune_schedule.h"
#include "engine/train/step/trainer.h"

namespace trafo {
namespace {

constexpr const char* kTrainerPruningOrigin = "trainer";

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

void Trainer::prepare_pruning() {
  if (options_.prune_sparsity == 0 && !options_.keep_zeros) return;
  const ParameterStore& parameters = model_.parameters();
  std::vector<ElementRange> matrices;
  for (size_t i = 0; i < parameters.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    if (!is_pruned(parameters, id)) continue;
    const int64_t begin = parameters.offset(id);
    matrices.push_back({begin, begin + element_count(parameters.shape(id))});
  }
  require(!matrices.empty(), ErrorCode::invalid_argument, kTrainerPruningOrigin,
          options_.keep_zeros ? "keep_zeros" : "prune_sparsity",
          ": every linear layer is frozen, there is no weight to prune");
  pruned_weights_.emplace(context_, *optimizer_, matrices);
}

// The number of the update that comes next, which depends on whether those in flight are skipped:
// waits for them.
int64_t Trainer::next_update() const {
  if (in_flight_.empty()) return state_.update + 1;
  const UpdateRecord* newest = in_flight_.back().record;
  if (stream_) stream_->wait(record_event(static_cast<size_t>(newest - records_)));
  return newest->updates + 1;
}

// Prunes if the schedule says so, before the gradients of an update. All ranks have the same
// weights and prune them alike. Pruning again, after an update that was skipped or failed, changes
// nothing: the weights of least magnitude are then the zeros.
void Trainer::prune_weights() {
  bool may_prune = false;
  for (size_t i = 0; i <= in_flight_.size(); ++i)
    may_prune |= prunes_before(options_, state_.update + 1 + static_cast<int64_t>(i));
  if (!may_prune) return;
  const int64_t update = next_update();
  if (!prunes_before(options_, update)) return;
  const PhaseRange phase(context_, "prune", true);
  ParameterStore& parameters = model_.parameters();
  const double sparsity = scheduled_sparsity(options_, update);
  for (size_t i = 0; i < parameters.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    if (is_pruned(parameters, id)) nn::prune_by_magnitude(context_, parameters, id, sparsity);
  }
  pruned_weights_->mask_states();
}

}  // namespace trafo
