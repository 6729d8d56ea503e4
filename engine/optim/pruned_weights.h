// Weights that are pruned: exactly zero, and to stay so.
#pragma once

#include <vector>

#include "engine/core/element_range.h"
#include "engine/optim/optimizer.h"

namespace trafo {

// There is no mask: a weight of a prunable matrix is pruned while it is zero. A zero weight whose
// gradient and states are zero stays zero in AdamW and SGD, with and without weight decay.
class PrunedWeights {
 public:
  // `matrices`: elements of the optimizer's whole workspace that may be pruned, none of them twice;
  // each range begins at a multiple of kGroupElements, and no other parameter is in its last
  // kGroupElements. Context and optimizer must outlive this.
  PrunedWeights(Context& context, const Optimizer& optimizer,
                const std::vector<ElementRange>& matrices);

  // Zeroes the gradients of pruned weights, in the optimizer's shard. Before the norm of an update.
  void mask_gradient() const;
  // Zeroes the states and the EMA of pruned weights, in the optimizer's shard. After weights were
  // pruned.
  void mask_states() const;

  int64_t bytes() const { return static_cast<int64_t>(prunable_.bytes()); }

 private:
  void mask(const UpdateState& state, void* x, bool codes) const;

  Context& context_;
  const Optimizer& optimizer_;
  Tensor prunable_;  // ZeroPrunedParams::prunable of the optimizer's shard, as int32 words
};

}  // namespace trafo
