// Corpus BLEU (Papineni et al. 2002), equal to sacreBLEU 2's corpus_bleu with one reference.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trafo {

inline constexpr int kBleuOrder = 4;

enum class BleuTokenizer { mteval_13a, none };
// exp: the k-th order without a match has the precision 1 / (2^k total), as in NIST's mteval-v13a.
// none: an order without a match makes the score 0.
enum class BleuSmoothing { exp, none };

struct BleuOptions {
  BleuTokenizer tokenizer = BleuTokenizer::mteval_13a;
  BleuSmoothing smoothing = BleuSmoothing::exp;
  bool lowercase = false;
  bool effective_order = false;  // leave out orders longer than every hypothesis
};

struct BleuScore {
  double score = 0;                             // 0 to 100
  std::array<double, kBleuOrder> precisions{};  // per cent, smoothed
  std::array<int64_t, kBleuOrder> matches{}, totals{};
  double brevity_penalty = 1;
  int64_t hypothesis_length = 0, reference_length = 0;  // tokens
  BleuOptions options;

  std::string signature() const;  // "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|trafo:..."
  std::string text() const;       // "BLEU = 41.02 72.1/48.3/... (BP = 1.000 ratio = ... )"
};

// hypotheses[i] belongs to references[i]; both may be empty strings. INVALID_ARGUMENT if the counts
// differ or are 0.
BleuScore corpus_bleu(std::span<const std::string> hypotheses,
                      std::span<const std::string> references, const BleuOptions& options = {});

// The words that BLEU counts, in order: tokenizer 13a of mteval, then split at white space.
std::vector<std::string> bleu_tokens(std::string_view line, const BleuOptions& options = {});

}  // namespace trafo
