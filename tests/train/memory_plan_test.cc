// Memory that a layer keeps for backward, measured by plans of models that differ by one layer.
#include "engine/train/plan/memory_plan.h"

#include <gtest/gtest.h>

#include <iostream>

#include "engine/train/step/trainer.h"
#include "tests/models/llama_models.h"

namespace trafo {
namespace {

constexpr int64_t kSentences = 16, kTargetTokens = 16 * 256;

ModelConfig gpt2_like(Activation activation) {
  ModelConfig config;
  config.architecture = Architecture::decoder_lm;
  config.vocabulary = 1024;
  config.width = 768;
  config.ffn_width = 4 * config.width;
  config.heads = 12;
  config.activation = activation;
  config.dropout = 0;
  return config;
}

// Bytes a token that a layer more adds to the arena of a step in bfloat16.
double bytes_of_a_layer(ModelConfig config, Recompute recompute) {
  TrainOptions options;
  options.recompute = recompute;
  const auto arena = [&](int64_t layers) {
    config.decoder_layers = layers;
    return plan_training({DeviceKind::cuda, 0}, config, DType::bf16, options,
                         {kSentences, 0, kTargetTokens})
        .activations;
  };
  return static_cast<double>(arena(5) - arena(4)) / kTargetTokens;
}

// In units of the width. Beside tensors of the model's width there are numbers of rows: in float32
// the log of the sum of exponentials of every head (attention), mean and rstd of two norms and,
// where those are computed again, both parts of the mean.
TEST(MemoryPlan, ActivationsOfADecoderLayer) {
  for (const Activation activation : {Activation::gelu, Activation::relu}) {
    const ModelConfig config = gpt2_like(activation);
    const auto width = static_cast<double>(config.width);
    const double rows = static_cast<double>(4 * (config.heads + 2 * 2)) / width,
                 parts = 4.0 * 2 * 2 / width;
    const double none = bytes_of_a_layer(config, Recompute::none) / width,
                 selective = bytes_of_a_layer(config, Recompute::selective) / width,
                 full = bytes_of_a_layer(config, Recompute::full) / width;
    std::cout << (activation == Activation::gelu ? "GELU" : "ReLU")
              << ", bytes a token and layer in units of the width: none " << none << ", selective "
              << selective << ", full " << full << "; numbers of rows " << rows << "\n";
    EXPECT_LE(none, 32 + rows + 1e-3);
    EXPECT_LE(selective, 20 + rows + parts + 1e-3);
    EXPECT_LE(full, 2 + 4.0 * 3 / width + 1e-3);  // the sum; both parts of the mean, rstd
  }
}

// The Llama form with a feed-forward of 8/3 widths: the gate and what it acts on are 32/3 widths,
// their product 16/3; the norms keep one number a row.
TEST(MemoryPlan, ActivationsOfALlamaLayer) {
  ModelConfig config = testing::llama_of(gpt2_like(Activation::silu));
  config.ffn_width = 8 * config.width / 3;
  const auto width = static_cast<double>(config.width);
  const double rows = static_cast<double>(4 * (config.heads + 2)) / width;
  const double none = bytes_of_a_layer(config, Recompute::none) / width,
               selective = bytes_of_a_layer(config, Recompute::selective) / width,
               full = bytes_of_a_layer(config, Recompute::full) / width;
  std::cout << "Llama, bytes a token and layer in units of the width: none " << none
            << ", selective " << selective << ", full " << full << "; numbers of rows " << rows
            << "\n";
  EXPECT_LE(none, 32 + rows + 1e-3);
  EXPECT_LE(selective, 32 - 4 - 16.0 / 3 + rows + 1e-3);
  EXPECT_LE(full, 2 + 4.0 / width + 1e-3);  // the sum, rstd
}

// The first micro-batch of an update begins its gradient, the others add to it: both are planned.
TEST(MemoryPlan, AllMicroBatchesOfAnUpdateArePlanned) {
  const std::vector<BatchBucket> buckets(2);
  TrainOptions options;
  EXPECT_EQ(buckets_of_an_update(buckets, options).size(), 2u);
  options.gradient_accumulation = 3;
  const std::vector<BatchBucket> all = buckets_of_an_update(buckets, options);
  ASSERT_EQ(all.size(), 4u);
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i].first, i < 2) << i;
}

}  // namespace
}  // namespace trafo
