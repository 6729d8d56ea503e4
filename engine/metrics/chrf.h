// Corpus chrF (Popovic 2015), equal to sacreBLEU 2's corpus_chrf with its defaults: character
// n-grams up to order 6 without white space, beta 2, averaged over the orders that occur on both
// sides.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/metrics/metric.h"

namespace trafo {

inline constexpr int kChrfOrder = 6;

struct ChrfOptions {
  bool lowercase = false;
};

// Counts of chrF. Counts of segments add up to the counts of a corpus.
struct ChrfCounts {
  std::array<int64_t, kChrfOrder> matches{}, hypothesis_totals{}, reference_totals{};

  ChrfCounts& operator+=(const ChrfCounts& other);
};

struct ChrfScore : ChrfCounts {
  double score = 0;  // 0 to 100
  size_t reference_sets = 1;
  ChrfOptions options;

  // "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|trafo:..."; `resampling` as for BleuScore.
  std::string signature(std::string_view resampling = {}) const;
};

// Of every segment, with the reference that gives it the highest score; the first of those.
std::vector<ChrfCounts> chrf_counts(std::span<const std::string> hypotheses,
                                    ReferenceSets references, const ChrfOptions& options);
ChrfScore chrf_score(const ChrfCounts& counts, size_t reference_sets, const ChrfOptions& options);

// INVALID_ARGUMENT if the counts differ or are 0. The score does not depend on the threads.
ChrfScore corpus_chrf(std::span<const std::string> hypotheses, ReferenceSets references,
                      const ChrfOptions& options = {}, int threads = 1);
ChrfScore corpus_chrf(std::span<const std::string> hypotheses,
                      std::span<const std::string> references, const ChrfOptions& options = {},
                      int threads = 1);

}  // namespace trafo
