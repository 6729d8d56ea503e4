#include "engine/nn/dropout_pass.h"

namespace trafo {

std::vector<bool> skipped_layers(uint64_t seed, uint32_t step, uint32_t first, uint32_t count,
                                 double p) {
  std::vector<bool> skipped;
  for (uint32_t layer = first; p > 0 && layer < first + count; ++layer) {
    const uint32_t id = layer * DropoutPass::kPerLayer + DropoutPass::kPerLayer - 1;
    if (philox4x32({0, 0, step, id}, seed)[0] >= p * 0x1p32) continue;
    skipped.resize(layer + 1);
    skipped[layer] = true;
  }
  return skipped;
}

}  // namespace trafo
