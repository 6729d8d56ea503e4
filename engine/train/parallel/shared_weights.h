// The weights of a model that one rank or several train together.
#pragma once

#include <vector>

#include "engine/nn/parameter_store.h"
#include "engine/optim/clipped_update.h"
#include "engine/train/parallel/lane_sums.h"
#include "engine/train/parallel/training_group.h"

namespace trafo {

// A rank updates its shard of the masters and of their EMA. The model computes with rounded values,
// which all ranks get in every update. Masters that have more digits than these are completed
// before anybody reads them. All but replace_incomplete() is collective; with one rank complete(),
// complete_with_ema() and replace_incomplete() do nothing.
class SharedWeights {
 public:
  // `prunes`: weights are pruned on the way, from whole matrices. All must outlive it.
  SharedWeights(Context& context, ParameterStore& parameters, Optimizer& optimizer,
                ClippedUpdate& update, const TrainingGroup& group, bool prunes);

  // Inputs of update() for each part of the shard, where nothing changes the gradient before.
  LaneSums::Added squares_of_parts();
  // One update with the flat gradient, of which a rank has its shard. Every rank decides from the
  // same partial sums, and so alike, whether it is skipped.
  void update(const StepSums& sums);

  // Of the masters.
  void complete();
  void complete_with_ema();
  // When the group has ended: masters that were not completed get the digits of the rounded values.
  void replace_incomplete() noexcept;
  // After a restore on rank 0, whose commit the other ranks follow with this call: they get the
  // optimizer states, and all ranks the weights and the EMA of rank 0.
  void follow_root();

 private:
  void update_shard(const StepSums& sums);
  void update_in_parts(const StepSums& sums, const Tensor& whole, int parts);
  bool may_leave_masters() const;
  std::vector<size_t> shard_bytes(const Tensor& workspace) const;

  Context& context_;
  ParameterStore& parameters_;
  Optimizer& optimizer_;
  ClippedUpdate& update_;
  TrainingGroup group_;
  bool prunes_;
  Tensor partials_;  // with peers: sums of squares of the gradient, of all shards
  bool complete_ = true;
};

}  // namespace trafo
