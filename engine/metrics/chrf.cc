#include "engine/metrics/chrf.h"

#include <compare>

#include "engine/core/cancel_scope.h"
#include "engine/core/progress.h"
#include "engine/core/status.h"
#include "engine/core/strings/utf8.h"
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

// Up to six characters, 21 bits each from the top of `high` down, then of `low`: code point + 1, so
// that 0 is the end.
struct Window {
  uint64_t high = 0, low = 0;
  auto operator<=>(const Window&) const = default;
};
constexpr size_t kHalf = 3, kCharacterBits = 21;
static_assert(kChrfOrder == 2 * kHalf);

// Bits of the first `count` characters of a half.
uint64_t first_characters(size_t count) {
  return ~uint64_t{0} << (kCharacterBits * (kHalf - count));
}

// The substrings that begin at each character of the text, at most six characters long, sorted.
std::vector<Window> sorted_windows(const std::vector<char32_t>& text) {
  std::vector<Window> windows(text.size());
  Window next;
  for (size_t i = text.size(); i-- > 0;) {
    next.low = next.low >> kCharacterBits | (next.high & ~first_characters(kHalf - 1))
                                                << (kCharacterBits * (kHalf - 1));
    next.high = next.high >> kCharacterBits | (uint64_t{text[i]} + 1)
                                                  << (kCharacterBits * (kHalf - 1));
    windows[i] = next;
  }
  std::sort(windows.begin(), windows.end());
  return windows;
}

// The sorted n-grams of the text: cutting windows to n characters keeps their order.
std::vector<Window> ngrams_of(const std::vector<Window>& windows, size_t n) {
  const uint64_t high = first_characters(std::min(n, kHalf)),
                 low = n > kHalf ? first_characters(n - kHalf) : 0;
  const size_t shift = kCharacterBits * (n > kHalf ? 2 * kHalf - n : kHalf - n);
  std::vector<Window> ngrams;
  ngrams.reserve(windows.size());
  for (const Window& window : windows) {
    const uint64_t last = (n > kHalf ? window.low : window.high) >> shift;
    if ((last & ~(~uint64_t{0} << kCharacterBits)) != 0)
      ngrams.push_back({window.high & high, window.low & low});
  }
  return ngrams;
}

ChrfCounts count_segment(const std::vector<Window>& hypothesis,
                         const std::vector<Window>& reference) {
  ChrfCounts counts;
  for (size_t n = 0; n < kChrfOrder; ++n) {
    const auto hypothesis_ngrams = ngrams_of(hypothesis, n + 1);
    const auto reference_ngrams = ngrams_of(reference, n + 1);
    // If the reference is too short for this order, the hypothesis does not count either.
    if (!reference_ngrams.empty())
      counts.hypothesis_totals[n] = static_cast<int64_t>(hypothesis_ngrams.size());
    counts.reference_totals[n] = static_cast<int64_t>(reference_ngrams.size());
    counts.matches[n] = count_matches(hypothesis_ngrams, reference_ngrams);
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
  WorkProgress progress(Work::evaluate, std::ssize(hypotheses));
  for (size_t i = 0; i < hypotheses.size(); ++i) {
    stop_if_call_is_cancelled("chrF");
    const auto hypothesis = sorted_windows(characters(hypotheses[i], options.lowercase));
    double highest = -1;
    counts.emplace_back();
    for (const auto& set : references) {
      const ChrfCounts of_reference =
          count_segment(hypothesis, sorted_windows(characters(set[i], options.lowercase)));
      const double score = compute_score(of_reference);
      if (score <= highest) continue;
      highest = score;
      counts.back() = of_reference;
    }
    progress.add(1);
  }
  progress.finish();
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
                      const ChrfOptions& options, int threads) {
  check_segments(hypotheses, references, "chrF");
  const auto sum =
      sum_of_segments<ChrfCounts>(hypotheses, references, threads,
                                  [&](std::span<const std::string> part, ReferenceSets of_part) {
                                    return chrf_counts(part, of_part, options);
                                  });
  return chrf_score(sum, references.size(), options);
}

ChrfScore corpus_chrf(std::span<const std::string> hypotheses,
                      std::span<const std::string> references, const ChrfOptions& options,
                      int threads) {
  return corpus_chrf(hypotheses, ReferenceSets(&references, 1), options, threads);
}

std::string ChrfScore::signature(std::string_view resampling) const {
  return concat("nrefs:", reference_sets, "|", resampling, resampling.empty() ? "" : "|",
                "case:", options.lowercase ? "lc" : "mixed", "|eff:yes|nc:6|nw:0|space:no|",
                kMetricVersion);
}

double validation_chrf(std::span<const std::string> hypotheses, ReferenceSets references,
                       int threads) {
  return corpus_chrf(hypotheses, references, {}, threads).score;
}

}  // namespace trafo
