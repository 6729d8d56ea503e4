#include "engine/metrics/chrf.h"

#include <vector>

#include "engine/core/status.h"
#include "engine/core/utf8.h"
#include "engine/metrics/lowercase.h"
#include "engine/metrics/metric.h"

namespace trafo {
namespace {

constexpr double kBeta = 2;

std::vector<char32_t> characters(const std::string& text, bool lowercase) {
  std::vector<char32_t> result = to_code_points(lowercase ? lowercase_utf8(text) : text);
  std::erase_if(result, is_unicode_space);
  return result;
}

double compute_score(const ChrfScore& chrf) {
  double precision = 0, recall = 0;
  int orders = 0;
  for (size_t n = 0; n < kChrfOrder; ++n) {
    if (chrf.hypothesis_totals[n] == 0 || chrf.reference_totals[n] == 0) continue;
    const auto matches = static_cast<double>(chrf.matches[n]);
    precision += matches / static_cast<double>(chrf.hypothesis_totals[n]);
    recall += matches / static_cast<double>(chrf.reference_totals[n]);
    ++orders;
  }
  if (precision + recall == 0) return 0;
  precision /= orders;
  recall /= orders;
  constexpr double factor = kBeta * kBeta;
  return 100 * (1 + factor) * precision * recall / (factor * precision + recall);
}

}  // namespace

ChrfScore corpus_chrf(std::span<const std::string> hypotheses,
                      std::span<const std::string> references, const ChrfOptions& options) {
  check_segments(hypotheses, references, "corpus_chrf");
  ChrfScore chrf;
  chrf.options = options;
  for (size_t i = 0; i < hypotheses.size(); ++i) {
    const auto hypothesis = characters(hypotheses[i], options.lowercase);
    const auto reference = characters(references[i], options.lowercase);
    for (size_t n = 1; n <= kChrfOrder; ++n) {
      const auto hypothesis_ngrams = sorted_ngrams<kChrfOrder>(hypothesis, n);
      const auto reference_ngrams = sorted_ngrams<kChrfOrder>(reference, n);
      // If the reference is too short for this order, the hypothesis does not count either.
      if (!reference_ngrams.empty())
        chrf.hypothesis_totals[n - 1] += static_cast<int64_t>(hypothesis_ngrams.size());
      chrf.reference_totals[n - 1] += static_cast<int64_t>(reference_ngrams.size());
      chrf.matches[n - 1] += count_matches(hypothesis_ngrams, reference_ngrams);
    }
  }
  chrf.score = compute_score(chrf);
  return chrf;
}

std::string ChrfScore::signature() const {
  return concat("nrefs:1|case:", options.lowercase ? "lc" : "mixed", "|eff:yes|nc:6|nw:0|space:no|",
                kMetricVersion);
}

}  // namespace trafo
