// Rules on the logits of a decode step, most of which depend on the tokens before it. They apply in
// this order to the logit x of a token:
//
//   repetition_penalty p (Keskar et al., arXiv 1909.05858): if the text already has the token,
//     x / p if x > 0, else x * p. As transformers' RepetitionPenaltyLogitsProcessor.
//   presence_penalty a, frequency_penalty f: x - a - f n, if the token was generated n > 0 times.
//     As in OpenAI's API.
//   logit_bias b: x + b.
//   no_repeat_ngram_size n, banned_tokens: -infinity if the token would complete an n-gram that
//     the text already has (transformers' NoRepeatNGramLogitsProcessor), or is banned.
//
// Probabilities are computed from the changed logits, as in CTranslate2: they sum to 1 over the
// tokens that are left, and greedy search, beam search and sampling choose by the same numbers.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "engine/decode/options.h"
#include "engine/runtime/context.h"

namespace trafo {

class LogitsProcessor {
 public:
  explicit LogitsProcessor(const DecodeOptions& options)
      : penalty_(options.repetition_penalty),
        presence_(options.presence_penalty),
        frequency_(options.frequency_penalty),
        ngram_(options.no_repeat_ngram_size),
        banned_(options.banned_tokens),
        bias_(options.logit_bias) {}

  // False: logits stay as they are.
  bool active() const {
    return penalty_ != 1 || counts() || ngram_ > 0 || !banned_.empty() || !bias_.empty();
  }

  // A row of the logits, and the text that its token continues, whose first `given` tokens were not
  // generated.
  struct Row {
    int64_t row;
    std::vector<int32_t> text;
    size_t given = 0;
  };
  // The logits [rows, classes] after the rules; rows that are not named are unchanged. `classes`:
  // ascending, the token of each column; empty: column i is token i. Outside autodiff.
  Tensor process(Context& context, const Tensor& logits, std::span<const Row> rows,
                 std::span<const int32_t> classes) const;

  // The tokens that would complete an n-gram of the text again, each once, ascending. n >= 1.
  static std::vector<int32_t> repeating(std::span<const int32_t> text, int64_t n);

 private:
  // The rules for one token in one row.
  struct Rule {
    int32_t token;  // then its column
    bool in_text = false;
    int32_t generated = 0;
    double bias = 0;
    bool excluded = false;
  };
  bool counts() const { return presence_ != 0 || frequency_ != 0; }
  // Ascending by column, each once.
  std::vector<Rule> rules_of(const Row& row, std::span<const int32_t> classes) const;
  double changed(double logit, const Rule& rule) const;

  double penalty_, presence_, frequency_;
  int64_t ngram_;
  std::vector<int32_t> banned_;
  std::vector<std::pair<int32_t, double>> bias_;
};

}  // namespace trafo
