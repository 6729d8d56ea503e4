// Seeds have 64 bits: two that differ in the upper half alone give different weights, orders, masks
// and draws.
#include <gtest/gtest.h>

#include "engine/core/numeric/shuffle.h"
#include "engine/data/batcher.h"
#include "engine/decode/search.h"
#include "tests/decode/decode_models.h"
#include "tests/train/training_support.h"

namespace trafo {
namespace {

using namespace testing;

constexpr uint64_t kSeed = 42, kUpper = kSeed + (uint64_t{1} << 32);

std::vector<std::byte> trained(uint64_t seed, double dropout, int64_t sentences) {
  TrainOptions options = quick_options();
  options.seed = seed;
  options.after_updates = 8;
  Process process(copy_data(Architecture::encoder_decoder, sentences), options, std::nullopt, 1,
                  tiny_config(Architecture::encoder_decoder, dropout));
  process.run->run();
  return process.weights();
}

TEST(Seed, WeightsDependOnItsUpperHalf) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const auto weights = [&](uint64_t seed) {
    return weight_bytes(*context, *make_model(*context, tiny_config(), seed));
  };
  EXPECT_EQ(weights(kSeed), weights(kSeed));
  EXPECT_NE(weights(kSeed), weights(kUpper));
}

TEST(Seed, TheOrderOfPairsDependsOnItsUpperHalf) {
  EXPECT_EQ(trained(kSeed, 0, 60), trained(kSeed, 0, 60));
  EXPECT_NE(trained(kSeed, 0, 60), trained(kUpper, 0, 60));
}

TEST(Seed, DropoutMasksDependOnItsUpperHalf) {
  // One sentence has one order.
  EXPECT_EQ(trained(kSeed, 0, 1), trained(kUpper, 0, 1));
  EXPECT_NE(trained(kSeed, 0.3, 1), trained(kUpper, 0.3, 1));
}

TEST(Seed, SamplesDependOnItsUpperHalf) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const auto model = random_model(*context, decode_config(Architecture::encoder_decoder), 3);
  const std::vector<std::vector<int32_t>> sources{{5, 7, 9, kEos}, {6, 4, kEos}};
  const auto samples = [&](uint64_t seed) {
    DecodeOptions options;
    options.tokens.eos = kEos;
    options.tokens.bos = 1;
    options.max_length = 16;
    options.n_best = 8;
    options.sampling.on = true;
    options.sampling.seed = seed;
    std::vector<std::vector<int32_t>> found;
    for (const auto& of_source : translate_tokens(*context, *model, sources, options))
      for (const Hypothesis& hypothesis : of_source) found.push_back(hypothesis.tokens);
    return found;
  };
  EXPECT_EQ(samples(kSeed), samples(kSeed));
  EXPECT_NE(samples(kSeed), samples(kUpper));
}

}  // namespace
}  // namespace trafo
