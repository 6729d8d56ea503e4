// Promises of recomputation on every device.
#pragma once

#include <cstdint>
#include <span>

#include "tests/train/training_support.h"

namespace trafo::testing {

// Each step from none over selective to full takes less memory, and changes no bit of the weights.
// make() returns a new context of the device.
template <class Make>
void expect_recompute_saves_memory(const Make& make, const ModelConfig& config,
                                   std::span<const PackedBatchHost> batches) {
  std::vector<std::byte> weights;
  size_t most = SIZE_MAX;
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    const auto context = make();
    const auto model = make_model(*context, config, 5);
    TrainOptions options = quick_options();
    options.recompute = recompute;
    Trainer trainer(*context, *model, options);
    for (const PackedBatchHost& batch : batches) trainer.step({&batch, 1});
    if (weights.empty()) weights = weight_bytes(*context, *model);
    EXPECT_EQ(weight_bytes(*context, *model), weights);
    EXPECT_LT(context->backend().arena_bytes(), most);
    most = context->backend().arena_bytes();
  }
}

}  // namespace trafo::testing
