// The result of decoding.
#pragma once

#include <cstdint>
#include <vector>

namespace trafo {

// How much each token of a hypothesis attends to each source token; see align() in alignment.h.
struct Alignment {
  int64_t target_tokens = 0, source_tokens = 0;  // eos counted, where the hypothesis has one
  // [target_tokens, source_tokens]. Row t is the distribution from which token t was predicted: its
  // weights are not negative and sum to 1.
  std::vector<float> weights;
};

struct Hypothesis {
  std::vector<int32_t> tokens;  // without eos
  double score = 0;  // log_probability / tokens^length_penalty, eos counted; ranks hypotheses
  double log_probability = 0;  // natural logarithm, eos included
  bool finished = true;        // false: cut off, see finish_reason
  // With DecodeOptions::word_scores: the natural log-probability of each token, then of eos if it
  // is finished. They sum to log_probability.
  std::vector<double> word_scores = {};
  // With DecodeOptions::alignment. The empty translation of an empty source has none.
  Alignment alignment = {};
  bool blocked = false;  // not finished: no token was allowed to follow
};

// Values are part of the C ABI: never renumber, only append.
// stop: of a generation alone (generator.h).
enum class FinishReason : int32_t { end = 0, length = 1, blocked = 2, stop = 3 };

inline FinishReason finish_reason(const Hypothesis& hypothesis) {
  if (hypothesis.finished) return FinishReason::end;
  return hypothesis.blocked ? FinishReason::blocked : FinishReason::length;
}

}  // namespace trafo
