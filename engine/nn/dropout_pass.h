// Which dropout masks a forward pass uses.
#pragma once

#include <cstdint>

#include "engine/core/philox.h"

namespace trafo {

// A mask is a function of (seed, step, dropout id, element). The same dropout of a model has the
// same id in every pass; the id of a dropout is layer * kPerLayer + its number in the layer.
struct DropoutPass {
  uint64_t seed = 0;
  uint32_t step = 0;      // number of the forward pass in the run
  bool training = false;  // off: no dropout anywhere

  static constexpr uint32_t kPerLayer = 8;
  Dropout at(uint32_t layer, uint32_t number, double p) const {
    return {training ? static_cast<float>(p) : 0.0f, seed, step, layer * kPerLayer + number};
  }
};

}  // namespace trafo
