#include "engine/nn/stack_spec.h"

#include <algorithm>

namespace trafo {

LayerSharing layer_sharing(int64_t layers, const std::vector<int64_t>& tied) {
  LayerSharing sharing;
  for (int64_t i = 0; i < layers; ++i) {
    const auto first =
        std::find(tied.begin(), tied.end(), tied.empty() ? 0 : tied[static_cast<size_t>(i)]);
    const int64_t owner = tied.empty() ? i : first - tied.begin();
    sharing.owners.push_back(owner);
    sharing.sets.push_back(owner == i ? sharing.set_count++
                                      : sharing.sets[static_cast<size_t>(owner)]);
  }
  return sharing;
}

std::vector<int64_t> distinct_layers(const LayerSharing& sharing) {
  std::vector<int64_t> layers = sharing.owners;
  std::sort(layers.begin(), layers.end());
  layers.erase(std::unique(layers.begin(), layers.end()), layers.end());
  return layers;
}

}  // namespace trafo
