// Beam search over one sentence: which hypotheses live on, which are finished. Knows no tensors.
//
// In each step the expansions of all live hypotheses are ranked by log-probability. Those among the
// first `beam` that end in eos are finished; the first `beam` of the others live on. The search
// ends when `beam` hypotheses are finished and no live one scores better, as it stands, than the
// best of them; or at the maximum length. How many are returned does not change the search.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/decode/options.h"

namespace trafo {

struct Hypothesis {
  std::vector<int32_t> tokens;  // without eos
  double score =
      0;  // what hypotheses are ranked by: log_probability / tokens^length_penalty, eos counted
  double log_probability = 0;  // natural logarithm, eos included
  bool finished = true;        // false: cut off at the maximum length
};

class BeamSearch {
 public:
  struct Live {
    std::vector<int32_t> tokens;
    double log_probability = 0;
    int32_t parent = 0;  // its place in the live list of the step before
  };
  struct Candidate {
    double log_probability;  // of the hypothesis with this token
    int32_t parent;          // place in live()
    int32_t token;
  };

  // max_steps >= 1: tokens of the longest hypothesis, eos counted.
  BeamSearch(const DecodeOptions& options, int64_t max_steps);

  // At first, one hypothesis without tokens. In order of falling log-probability.
  const std::vector<Live>& live() const { return live_; }
  // True when nothing is left to expand.
  bool done() const { return done_; }
  // `candidates` must hold, of each live hypothesis, eos and the `beam` best other tokens, or all
  // tokens if there are fewer. It is reordered.
  void advance(std::vector<Candidate>& candidates);
  // The n_best finished hypotheses, best first; if none is, the best live one.
  std::vector<Hypothesis> results() const;

 private:
  double normalised(double log_probability) const;
  bool settled() const;

  int64_t beam_, n_best_, min_length_, max_steps_;
  double length_penalty_;
  int32_t eos_;
  int64_t steps_ = 0;
  bool done_ = false;
  std::vector<Live> live_;
  std::vector<Hypothesis> finished_;
};

}  // namespace trafo
