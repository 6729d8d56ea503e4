// Rules on the logits of a decode step that depend on the tokens before it: repetition penalty and
// n-grams that may not repeat. The formulas are the same as in transformers'
// RepetitionPenaltyLogitsProcessor and NoRepeatNGramLogitsProcessor.
//
//   repetition_penalty p (Keskar et al., arXiv 1909.05858): the logit x of each token that the text
//     already has becomes x / p if x > 0, else x * p.
//   no_repeat_ngram_size n: a token that would complete an n-gram that the text already has gets
//     the logit -infinity.
//
// Probabilities are computed from the changed logits, as in CTranslate2: they sum to 1 over the
// tokens that are left, and greedy search, beam search and sampling choose by the same numbers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/decode/options.h"
#include "engine/runtime/context.h"

namespace trafo {

class LogitsProcessor {
 public:
  explicit LogitsProcessor(const DecodeOptions& options)
      : penalty_(options.repetition_penalty), ngram_(options.no_repeat_ngram_size) {}

  // False: logits stay as they are.
  bool active() const { return penalty_ != 1 || ngram_ > 0; }

  // A row of the logits, and the text that its token continues.
  struct Row {
    int64_t row;
    std::vector<int32_t> text;
  };
  // The logits [rows, classes] after the rules; rows that are not named are unchanged. `classes`:
  // ascending, the token of each column; empty: column i is token i. Outside autodiff.
  Tensor process(Context& context, const Tensor& logits, std::span<const Row> rows,
                 std::span<const int32_t> classes) const;

  // The tokens that would complete an n-gram of the text again, each once, ascending. n >= 1.
  static std::vector<int32_t> repeating(std::span<const int32_t> text, int64_t n);

 private:
  double penalty_;
  int64_t ngram_;
};

}  // namespace trafo
