#include "engine/metrics/chrf.h"

#include "engine/core/status.h"
#include "engine/core/utf8.h"
#include "engine/metrics/lowercase.h"

namespace trafo {
namespace {

constexpr double kBeta = 2;

std::vector<char32_t> characters(const std::string& text, bool lowercase) {
  std::vector<char32_t> result = to_code_points(lowercase ? lowercase_utf8(text) : text);
  std::erase_if(result, is_unicode_space);
  return result;
}

double compute_score(const ChrfCounts& chrf) {
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

ChrfCounts count_segment(const std::vector<char32_t>& hypothesis,
                         const std::vector<char32_t>& reference) {
  ChrfCounts counts;
  for (size_t n = 1; n <= kChrfOrder; ++n) {
    const auto hypothesis_ngrams = sorted_ngrams<kChrfOrder>(hypothesis, n);
    const auto reference_ngrams = sorted_ngrams<kChrfOrder>(reference, n);
    // If the reference is too short for this order, the hypothesis does not count either.
    if (!reference_ngrams.empty())
      counts.hypothesis_totals[n - 1] = static_cast<int64_t>(hypothesis_ngrams.size());
    counts.reference_totals[n - 1] = static_cast<int64_t>(reference_ngrams.size());
    counts.matches[n - 1] = count_matches(hypothesis_ngrams, reference_ngrams);
  }
  return counts;
}

}  // namespace

ChrfCounts& ChrfCounts::operator+=(const ChrfCounts& other) {
  for (size_t n = 0; n < kChrfOrder; ++n) {
    matches[n] += other.matches[n];
    hypothesis_totals[n] += other.hypothesis_totals[n];
    reference_totals[n] += other.reference_totals[n];
  }
  return *this;
}

std::vector<ChrfCounts> chrf_counts(std::span<const std::string> hypotheses,
                                    ReferenceSets references, const ChrfOptions& options) {
  check_segments(hypotheses, references, "chrF");
  std::vector<ChrfCounts> counts;
  counts.reserve(hypotheses.size());
  for (size_t i = 0; i < hypotheses.size(); ++i) {
    const auto hypothesis = characters(hypotheses[i], options.lowercase);
    double highest = -1;
    counts.emplace_back();
    for (const auto& set : references) {
      const ChrfCounts of_reference =
          count_segment(hypothesis, characters(set[i], options.lowercase));
      const double score = compute_score(of_reference);
      if (score <= highest) continue;
      highest = score;
      counts.back() = of_reference;
    }
  }
  return counts;
}

ChrfScore chrf_score(const ChrfCounts& counts, size_t reference_sets, const ChrfOptions& options) {
  ChrfScore chrf;
  static_cast<ChrfCounts&>(chrf) = counts;
  chrf.reference_sets = reference_sets;
  chrf.options = options;
  chrf.score = compute_score(counts);
  return chrf;
}

ChrfScore corpus_chrf(std::span<const std::string> hypotheses, ReferenceSets references,
                      const ChrfOptions& options) {
  ChrfCounts sum;
  for (const ChrfCounts& segment : chrf_counts(hypotheses, references, options)) sum += segment;
  return chrf_score(sum, references.size(), options);
}

ChrfScore corpus_chrf(std::span<const std::string> hypotheses,
                      std::span<const std::string> references, const ChrfOptions& options) {
  return corpus_chrf(hypotheses, ReferenceSets(&references, 1), options);
}

std::string ChrfScore::signature(std::string_view resampling) const {
  return concat("nrefs:", reference_sets, "|", resampling, resampling.empty() ? "" : "|",
                "case:", options.lowercase ? "lc" : "mixed", "|eff:yes|nc:6|nw:0|space:no|",
                kMetricVersion);
}

}  // namespace trafo
