// Corpus chrF (Popovic 2015), equal to sacreBLEU 2's corpus_chrf with its defaults and one
// reference: character n-grams up to order 6 without white space, beta 2, averaged over the orders
// that occur on both sides.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

namespace trafo {

inline constexpr int kChrfOrder = 6;

struct ChrfOptions {
  bool lowercase = false;
};

struct ChrfScore {
  double score = 0;  // 0 to 100
  std::array<int64_t, kChrfOrder> matches{}, hypothesis_totals{}, reference_totals{};
  ChrfOptions options;

  std::string signature() const;  // "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|trafo:..."
};

// INVALID_ARGUMENT if the counts differ or are 0.
ChrfScore corpus_chrf(std::span<const std::string> hypotheses,
                      std::span<const std::string> references, const ChrfOptions& options = {});

}  // namespace trafo
