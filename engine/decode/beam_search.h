// Beam search over one sentence: decides which hypotheses stay live and which are finished. It
// works on host values and knows no tensors.
//
// eos means every token that ends a hypothesis (DecodeOptions::more_ends).
//
// Each step ranks the expansions of all live hypotheses by log-probability. Expansions with eos
// among the first `beam` are finished hypotheses; the first `beam` of the others are the new live
// ones. The search ends at the maximum length, or when `beam` hypotheses are finished and no live
// one has a better score than the best of them. At the maximum length, live hypotheses are ranked
// with the finished ones by the same score, as in Marian and CTranslate2: otherwise a wide beam,
// which finishes some short and improbable hypotheses, would lose the good ones that need more
// room. n_best does not change the search.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/decode/hypothesis.h"
#include "engine/decode/options.h"

namespace trafo {

class BeamSearch {
 public:
  struct Live {
    std::vector<int32_t> tokens;
    double log_probability = 0;
    int32_t parent = 0;                    // index in the live list of the previous step
    std::vector<double> word_scores = {};  // as in Hypothesis
  };
  struct Candidate {
    double log_probability;  // of the hypothesis with this token
    int32_t parent;          // index in live()
    int32_t token;
  };

  // max_steps >= 1: tokens of the longest hypothesis, eos counted. No hypothesis ends before
  // min_steps tokens.
  BeamSearch(const DecodeOptions& options, int64_t max_steps, int64_t min_steps);
  BeamSearch(const DecodeOptions& options, int64_t max_steps)
      : BeamSearch(options, max_steps, options.min_length) {}

  // In order of falling log-probability. At the start, one hypothesis without tokens.
  const std::vector<Live>& live() const { return live_; }
  // True when nothing is left to expand.
  bool done() const { return done_; }
  // One step. `candidates` has, for each live hypothesis, eos and the `beam` best other tokens, or
  // all tokens if there are fewer. The call reorders it.
  void advance(std::vector<Candidate>& candidates);
  // The n_best hypotheses, best first: finished ones and, at the maximum length, live ones. If
  // nothing is finished and no live hypothesis can be expanded, the live ones. At least one.
  std::vector<Hypothesis> results() const;

 private:
  double normalised(double log_probability) const;
  // The word scores of `parent` and of a token that raises its log-probability to
  // `log_probability`; none without DecodeOptions::word_scores.
  std::vector<double> word_scores(const Live& parent, double log_probability) const;
  bool settled() const;

  int64_t beam_, n_best_, min_length_, max_steps_;
  double length_penalty_;
  bool word_scores_;
  std::vector<int32_t> ends_;
  int64_t steps_ = 0;
  bool done_ = false;
  std::vector<Live> live_;
  std::vector<Hypothesis> finished_;
};

}  // namespace trafo
