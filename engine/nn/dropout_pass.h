// Which dropout masks a forward pass uses, and which layers it skips.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/core/numeric/philox.h"

namespace trafo {

// A mask is a function of (seed, step, dropout id, element). The same dropout of a model has the
// same id in every pass; the id of a dropout is layer * kPerLayer + its number in the layer.
struct DropoutPass {
  uint64_t seed = 0;
  uint32_t step = 0;      // number of the forward pass in the run
  bool training = false;  // off: no dropout anywhere, no layer is skipped
  // Layers that layer drop skips, by their number; those beyond the end are run.
  std::vector<bool> skipped = {};

  static constexpr uint32_t kPerLayer = 8;
  bool skips(uint32_t layer) const { return training && layer < skipped.size() && skipped[layer]; }
  Dropout at(uint32_t layer, uint32_t number, double p) const {
    return {training ? static_cast<float>(p) : 0.0f, seed, step, layer * kPerLayer + number};
  }
};

// LayerDrop (Fan et al., arXiv 1909.11556): the layers first .. first + count - 1 that forward pass
// `step` skips, each with probability p, 0 <= p < 1; empty if it skips none. The host decides, with
// the random number that a dropout with the last number of the layer would take its first mask
// from.
std::vector<bool> skipped_layers(uint64_t seed, uint32_t step, uint32_t first, uint32_t count,
                                 double p);

}  // namespace trafo
