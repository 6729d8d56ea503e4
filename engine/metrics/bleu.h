// Corpus BLEU (Papineni et al. 2002), equal to sacreBLEU 2's corpus_bleu.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/metrics/bleu_tokenizer.h"
#include "engine/metrics/metric.h"

namespace trafo {

inline constexpr int kBleuOrder = 4;

// exp: the k-th order without a match has the precision 1 / (2^k total), as in NIST's mteval-v13a.
// none: an order without a match makes the score 0.
enum class BleuSmoothing { exp, none };

struct BleuOptions {
  BleuTokenizer tokenizer = BleuTokenizer::mteval_13a;
  BleuSmoothing smoothing = BleuSmoothing::exp;
  bool lowercase = false;
  bool effective_order = false;  // leave out orders longer than every hypothesis
  // Of tokenizer flores200: its model, and the model's checksum for the signature. Of ja_mecab:
  // what finds words, and its version for the signature.
  SubwordFunction subwords = {};
  std::string subwords_checksum = {}, mecab_version = {};
};

// Counts of BLEU. Counts of segments add up to the counts of a corpus.
struct BleuCounts {
  std::array<int64_t, kBleuOrder> matches{}, totals{};  // n-grams of length 1 to 4
  // Tokens. With several references, a segment has the length that is nearest to its hypothesis's,
  // the smaller one if two are as near.
  int64_t hypothesis_length = 0, reference_length = 0;

  BleuCounts& operator+=(const BleuCounts& other);
};

struct BleuScore : BleuCounts {
  double score = 0;                             // 0 to 100
  std::array<double, kBleuOrder> precisions{};  // per cent, smoothed
  double brevity_penalty = 1;
  size_t reference_sets = 1;
  BleuOptions options;

  // "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|trafo:..."; `resampling`, as
  // "bs:1000|seed:12345", follows the number of references.
  std::string signature(std::string_view resampling = {}) const;
  std::string text() const;  // "BLEU = 41.02 72.1/48.3/... (BP = 1.000 ratio = ... )"
};

// Of every segment. An n-gram matches as often as it occurs in the hypothesis and in the reference
// that has it most often.
std::vector<BleuCounts> bleu_counts(std::span<const std::string> hypotheses,
                                    ReferenceSets references, const BleuOptions& options);
BleuScore bleu_score(const BleuCounts& counts, size_t reference_sets, const BleuOptions& options);

// hypotheses[i] belongs to element i of each set of references; both may be empty strings.
// INVALID_ARGUMENT if the counts differ or are 0. The score does not depend on the threads.
BleuScore corpus_bleu(std::span<const std::string> hypotheses, ReferenceSets references,
                      const BleuOptions& options = {}, int threads = 1);
BleuScore corpus_bleu(std::span<const std::string> hypotheses,
                      std::span<const std::string> references, const BleuOptions& options = {},
                      int threads = 1);

// The words that BLEU counts, in order.
std::vector<std::string> bleu_tokens(std::string_view line, const BleuOptions& options = {});

}  // namespace trafo
