#include "engine/data/token_masking.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

namespace trafo {
namespace {

TokenMasking masking_of_hundred() {
  return {.probability = 0.15, .mask = 4, .vocabulary = 100, .kept = {0, 1, 2, 3, 4}};
}

TEST(TokenMasking, CountsAreRoundedAndAtLeastOne) {
  const TokenMasking masking = masking_of_hundred();
  std::vector<int32_t> text(40, 7);
  EXPECT_EQ(masked_count(masking, text), 6);
  text.assign(3, 7);
  EXPECT_EQ(masked_count(masking, text), 1);
  text = {2, 3, 1};  // special tokens alone
  EXPECT_EQ(masked_count(masking, text), 0);
  EXPECT_EQ(masked_count(masking, {}), 0);
}

TEST(TokenMasking, EightOfTenAreMaskedAndOneIsRandom) {
  const TokenMasking masking = masking_of_hundred();
  std::vector<int32_t> text(402, 50);
  text.front() = 2;
  text.back() = 3;
  double masked = 0, random = 0, chosen = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    std::vector<int32_t> changed = text;
    std::vector<float> weights(text.size(), -1);
    mask_tokens(masking, seed, 3, changed, weights);
    EXPECT_EQ(std::accumulate(weights.begin(), weights.end(), 0.0f), 60);
    EXPECT_EQ(changed.front(), 2);
    EXPECT_EQ(changed.back(), 3);
    for (size_t i = 0; i < text.size(); ++i) {
      if (weights[i] == 0) {
        EXPECT_EQ(changed[i], text[i]);
        continue;
      }
      ++chosen;
      masked += changed[i] == 4;
      random += changed[i] != 4 && changed[i] != 50;
      EXPECT_TRUE(changed[i] >= 0 && changed[i] < 100);
    }
  }
  // 4 and 50 are drawn at random as well.
  EXPECT_NEAR(masked / chosen, 0.801, 5 * std::sqrt(0.16 / chosen));
  EXPECT_NEAR(random / chosen, 0.098, 5 * std::sqrt(0.09 / chosen));
}

TEST(TokenMasking, DependsOnSeedAndEpochAlone) {
  const TokenMasking masking = masking_of_hundred();
  const auto masked = [&](uint64_t seed, uint64_t epoch) {
    std::vector<int32_t> text(40, 50);
    std::vector<float> weights(40);
    mask_tokens(masking, seed, epoch, text, weights);
    return weights;
  };
  EXPECT_EQ(masked(1, 0), masked(1, 0));
  EXPECT_NE(masked(1, 0), masked(2, 0));
  EXPECT_NE(masked(1, 0), masked(1, 1));
}

}  // namespace
}  // namespace trafo
