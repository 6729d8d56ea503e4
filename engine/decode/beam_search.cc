#include "engine/decode/beam_search.h"
#include "engine/core/numeric/portable_power.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

namespace trafo {

BeamSearch::BeamSearch(const DecodeOptions& options, int64_t max_steps, int64_t min_steps)
    : beam_(options.beam),
      n_best_(options.all_hypotheses ? std::numeric_limits<int64_t>::max() : options.n_best),
      min_length_(min_steps),
      max_steps_(max_steps),
      length_penalty_(options.length_penalty),
      word_scores_(options.word_scores),
      ends_(options.more_ends),
      live_(1) {
  ends_.push_back(options.tokens.eos);
}

double BeamSearch::normalised(double log_probability) const {
  if (steps_ == 0) return 0;  // nothing was generated
  return log_probability / portable_pow(static_cast<double>(steps_), length_penalty_);
}

std::vector<double> BeamSearch::word_scores(const Live& parent, double log_probability) const {
  if (!word_scores_) return {};
  std::vector<double> scores;
  scores.reserve(parent.word_scores.size() + 1);
  scores = parent.word_scores;
  scores.push_back(log_probability - parent.log_probability);
  return scores;
}

void BeamSearch::advance(std::vector<Candidate>& candidates) {
  // Ties have a fixed order, so that results depend neither on the sort nor on other sentences.
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return std::tie(b.log_probability, a.parent, a.token) <
           std::tie(a.log_probability, b.parent, b.token);
  });
  ++steps_;
  std::vector<Live> next;
  int64_t rank = 0;
  for (const Candidate& candidate : candidates) {
    const bool ends = std::find(ends_.begin(), ends_.end(), candidate.token) != ends_.end();
    if (ends && steps_ <= min_length_) continue;
    const Live& parent = live_[static_cast<size_t>(candidate.parent)];
    if (ends) {
      if (rank < beam_)
        finished_.push_back({parent.tokens, normalised(candidate.log_probability),
                             candidate.log_probability, true,
                             word_scores(parent, candidate.log_probability)});
    } else if (static_cast<int64_t>(next.size()) < beam_) {
      Live child{{},
                 candidate.log_probability,
                 candidate.parent,
                 word_scores(parent, candidate.log_probability)};
      child.tokens.reserve(parent.tokens.size() + 1);
      child.tokens = parent.tokens;
      child.tokens.push_back(candidate.token);
      next.push_back(std::move(child));
    }
    ++rank;
    if (rank >= beam_ && static_cast<int64_t>(next.size()) >= beam_) break;
  }
  if (next.empty() && finished_.empty()) {  // no token may follow: the hypotheses end as they are
    --steps_;
    done_ = true;
    return;
  }
  live_ = std::move(next);
  done_ = settled() || live_.empty() || steps_ >= max_steps_;
}

bool BeamSearch::settled() const {
  if (static_cast<int64_t>(finished_.size()) < beam_) return false;
  if (live_.empty()) return true;
  double best = finished_[0].score;
  for (const Hypothesis& each : finished_) best = std::max(best, each.score);
  return best >= normalised(live_[0].log_probability);
}

std::vector<Hypothesis> BeamSearch::results() const {
  std::vector<Hypothesis> results = finished_;
  if (steps_ >= max_steps_ || finished_.empty())
    for (const Live& each : live_)
      results.push_back({each.tokens,
                         normalised(each.log_probability),
                         each.log_probability,
                         false,
                         each.word_scores,
                         {},
                         steps_ < max_steps_});
  // Equal scores: finished before unfinished, then in the order of the search.
  std::stable_sort(results.begin(), results.end(),
                   [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; });
  if (static_cast<int64_t>(results.size()) > n_best_) results.resize(static_cast<size_t>(n_best_));
  return results;
}

}  // namespace trafo
