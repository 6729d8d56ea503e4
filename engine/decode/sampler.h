// Sampling: draws the next token of each row of logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/decode/options.h"
#include "engine/runtime/context.h"

namespace trafo {

class Sampler {
 public:
  // Where a draw belongs. Its random number is a function of the place and the seed.
  struct Place {
    int64_t row = 0;       // of the logits
    int64_t sentence = 0;  // from 0, of this call
    int32_t sample = 0;
    int32_t position = 0;  // number of tokens drawn before
    bool may_end = true;   // false: no end is drawn
  };
  struct Draw {
    int32_t token = 0;  // negative: no token may follow
    // Natural logarithm, under softmax(logits / temperature) over all tokens.
    double log_probability = 0;
  };

  // `ends`: the tokens that end a hypothesis, eos among them. `banned` tokens are never drawn.
  Sampler(const DrawOptions& options, std::span<const int32_t> ends,
          std::span<const int32_t> banned);

  // One draw for each place. NON_FINITE, naming the sentence: its logits hold NaN or infinity.
  std::vector<Draw> draw(Context& context, const Tensor& logits, std::span<const Place> places);

 private:
  struct Token {
    double probability;
    int32_t id;
  };
  std::vector<Draw> draw_from_best(Context& context, const Tensor& logits,
                                   std::span<const Place> places);
  std::vector<Draw> draw_from_all(Context& context, const Tensor& logits,
                                  std::span<const Place> places);
  bool allowed(int32_t id, const Place& place) const;
  double uniform(const Place& place) const;
  Draw choose(std::span<const Token> tokens, const Place& place, double scale) const;
  double unlikely_tokens(std::span<const double> logits, const Place& place,
                         std::vector<Token>& tokens) const;

  const DrawOptions& options_;
  std::vector<int32_t> ends_, banned_;
};

}  // namespace trafo
