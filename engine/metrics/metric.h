// Shared by BLEU and chrF.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/parallel_chunks.h"

namespace trafo {

// The last part of every signature. Only scores with equal signatures are comparable.
inline constexpr std::string_view kMetricVersion = "trafo:0.1.0";

// One or more references of every segment: references[set][segment].
using ReferenceSets = std::span<const std::span<const std::string>>;

// INVALID_ARGUMENT if there are no hypotheses, no references, or a set of another size.
void check_segments(std::span<const std::string> hypotheses, ReferenceSets references,
                    std::string_view origin);

// A number with a decimal point in every locale.
std::string fixed(double value, int decimals);

// The number of elements that a and b have in common, counted with multiplicity. Both are sorted.
template <class Element>
int64_t count_matches(const std::vector<Element>& a, const std::vector<Element>& b) {
  int64_t matches = 0;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    if (a[i] < b[j]) {
      ++i;
    } else if (b[j] < a[i]) {
      ++j;
    } else {
      ++matches, ++i, ++j;
    }
  }
  return matches;
}

// The sorted n-grams of `symbols`, padded with zeros to Order. n <= Order; no symbol is 0.
template <size_t Order, class Symbol>
std::vector<std::array<Symbol, Order>> sorted_ngrams(const std::vector<Symbol>& symbols, size_t n) {
  std::vector<std::array<Symbol, Order>> ngrams;
  if (symbols.size() >= n) ngrams.resize(symbols.size() - n + 1);
  for (size_t i = 0; i < ngrams.size(); ++i) {
    ngrams[i].fill(Symbol{});
    std::copy_n(symbols.begin() + static_cast<std::ptrdiff_t>(i), n, ngrams[i].begin());
  }
  std::sort(ngrams.begin(), ngrams.end());
  return ngrams;
}

// The sum of the counts of all segments. counts_of(hypotheses, references) has the counts of some
// segments, one by one. Counts are integers: the sum does not depend on the threads.
template <class Counts, class CountsOf>
Counts sum_of_segments(std::span<const std::string> hypotheses, ReferenceSets references,
                       int threads, CountsOf&& counts_of) {
  constexpr int64_t kChunk = 64;
  const auto count = static_cast<int64_t>(hypotheses.size());
  std::vector<Counts> sums(static_cast<size_t>((count + kChunk - 1) / kChunk));
  parallel_chunks(count, kChunk, threads, [&](int64_t begin, int64_t end) {
    const auto first = static_cast<size_t>(begin), size = static_cast<size_t>(end - begin);
    std::vector<std::span<const std::string>> parts;
    for (const auto& set : references) parts.push_back(set.subspan(first, size));
    for (const Counts& segment : counts_of(hypotheses.subspan(first, size), ReferenceSets(parts)))
      sums[static_cast<size_t>(begin / kChunk)] += segment;
  });
  Counts sum;
  for (const Counts& part : sums) sum += part;
  return sum;
}

}  // namespace trafo
