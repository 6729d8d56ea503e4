// Masked tokens of a text, as BERT chooses them (Devlin et al., arXiv 1810.04805, section 3.1).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trafo {

struct TokenMasking {
  double probability = 0.15;
  int32_t mask = -1;               // the id of the mask token; -1: the vocabulary has none
  int64_t vocabulary = 0;          // random tokens are 0 to vocabulary - 1
  std::vector<int32_t> kept = {};  // special tokens, which are never masked
};

// Tokens of a text that are predicted: max(1, round(probability * n)) of the n that are no special
// tokens; 0 if there are none.
int64_t masked_count(const TokenMasking& masking, std::span<const int32_t> text);

// Chooses masked_count() tokens of `text` with the random stream (seed, epoch), replaces 80 % of
// them by the mask token and 10 % by a random one, and sets their weights to 1. Weights of the
// others are 0.
void mask_tokens(const TokenMasking& masking, uint64_t seed, uint64_t epoch,
                 std::span<int32_t> text, std::span<float> weights);

}  // namespace trafo
