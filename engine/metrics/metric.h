// What BLEU and chrF share.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trafo {

// Ends every signature: scores are comparable only between equal signatures.
inline constexpr std::string_view kMetricVersion = "trafo:0.1.0";

void check_segments(std::span<const std::string> hypotheses,
                    std::span<const std::string> references, std::string_view origin);

// Sum over distinct elements of the smaller count. Both must be sorted.
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

// Sorted n-grams of `symbols`, filled up with zeros: n <= Order, symbols are not 0.
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

}  // namespace trafo
