// Bootstrap resampling of corpus scores, and the paired test of Koehn ("Statistical Significance
// Tests for Machine Translation Evaluation", EMNLP 2004), as sacreBLEU's paired-bs computes it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/core/progress.h"

namespace trafo {

// As many segments as there are, drawn with replacement. The draws follow from the seed, the number
// of the resample and the number of segments alone, so two systems and two metrics get the same
// segments.
class Resamples {
 public:
  // 1 to 2^32 - 1 segments.
  Resamples(size_t segments, int64_t count, uint64_t seed);
  int64_t count() const { return count_; }
  // The segments of resample `number`, 0 to count() - 1. Replaces `drawn`.
  void draw(int64_t number, std::vector<uint32_t>& drawn) const;

  // score(sum of the counts) of each resample.
  template <class Counts, class Score>
  std::vector<double> scores(std::span<const Counts> segments, Score score) const {
    std::vector<double> result;
    result.reserve(static_cast<size_t>(count_));
    std::vector<uint32_t> drawn;
    WorkProgress progress(Work::resample, count_);
    for (int64_t number = 0; number < count_; ++number) {
      draw(number, drawn);
      Counts sum;
      for (const uint32_t segment : drawn) sum += segments[segment];
      result.push_back(score(sum));
      progress.add(1);
    }
    progress.finish();
    return result;
  }

 private:
  size_t segments_;
  int64_t count_;
  uint64_t seed_;
};

struct Interval {
  double mean = 0;        // of the resamples
  double half_width = 0;  // of the middle 95 per cent of them
};
Interval interval_of(std::vector<double> scores);

// How probable so large a difference would be if both systems were equal: the share of resamples
// whose absolute difference, less the mean of these, exceeds |system - baseline|. One is added to
// the count and to the number of resamples, so that it is never 0. `difference` belongs to the
// whole corpus. 1 if the systems do not differ in any resample, where sacreBLEU says 1 / (n + 1).
double paired_p_value(std::span<const double> system, std::span<const double> baseline,
                      double difference);

}  // namespace trafo
