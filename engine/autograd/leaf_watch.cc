#include "engine/autograd/leaf_watch.h"

#include <algorithm>

namespace trafo {

void LeafWatch::note(const Tensor& input) {
  const auto& storage = input.storage();
  for (LeafWatch* watch = this; watch; watch = watch->outer_) {
    auto& leaves = watch->leaves_;
    const bool known = std::any_of(leaves.begin(), leaves.end(),
                                   [&](const Leaf& leaf) { return leaf.storage == storage; });
    if (!known) leaves.push_back({storage, storage->version()});
  }
}

}  // namespace trafo
