#include "engine/metrics/bleu.h"

#include <iterator>
#include <unordered_map>

#include "engine/core/cancel_scope.h"
#include "engine/core/numeric/portable_math.h"
#include "engine/core/progress.h"
#include "engine/core/status.h"
#include "engine/metrics/lowercase.h"

namespace trafo {
namespace {

class Vocabulary {
 public:
  std::vector<int64_t> ids(const std::vector<std::string>& tokens) {
    std::vector<int64_t> result;
    result.reserve(tokens.size());
    for (const auto& token : tokens)
      result.push_back(
          ids_.try_emplace(token, static_cast<int64_t>(ids_.size()) + 1).first->second);
    return result;
  }

 private:
  std::unordered_map<std::string, int64_t> ids_;
};

int64_t distance(int64_t a, int64_t b) {
  return a < b ? b - a : a - b;
}

BleuCounts count_segment(const std::vector<int64_t>& hypothesis,
                         const std::vector<std::vector<int64_t>>& references) {
  BleuCounts counts;
  counts.hypothesis_length = static_cast<int64_t>(hypothesis.size());
  counts.reference_length = static_cast<int64_t>(references.front().size());
  for (const auto& reference : references) {
    const auto length = static_cast<int64_t>(reference.size());
    const int64_t nearest = distance(counts.reference_length, counts.hypothesis_length);
    const int64_t off = distance(length, counts.hypothesis_length);
    if (off < nearest || (off == nearest && length < counts.reference_length))
      counts.reference_length = length;
  }
  for (size_t n = 1; n <= kBleuOrder; ++n) {
    const auto ngrams = sorted_ngrams<kBleuOrder>(hypothesis, n);
    auto known = sorted_ngrams<kBleuOrder>(references.front(), n);
    for (size_t i = 1; i < references.size(); ++i) {
      const auto more = sorted_ngrams<kBleuOrder>(references[i], n);
      decltype(known) both;  // every n-gram as often as in the reference that has it most often
      std::set_union(known.begin(), known.end(), more.begin(), more.end(),
                     std::back_inserter(both));
      known = std::move(both);
    }
    counts.totals[n - 1] = static_cast<int64_t>(ngrams.size());
    counts.matches[n - 1] = count_matches(ngrams, known);
  }
  return counts;
}

void compute_score(BleuScore& bleu) {
  const auto hypothesis = static_cast<double>(bleu.hypothesis_length);
  const auto reference = static_cast<double>(bleu.reference_length);
  bleu.brevity_penalty = 1;
  if (bleu.hypothesis_length < bleu.reference_length)
    bleu.brevity_penalty = hypothesis > 0 ? portable_exp(1 - reference / hypothesis) : 0;
  if (bleu.matches == std::array<int64_t, kBleuOrder>{}) return;

  double halving = 1;
  int order = kBleuOrder;
  for (size_t n = 0; n < kBleuOrder; ++n) {
    if (bleu.totals[n] == 0) break;
    if (bleu.options.effective_order) order = static_cast<int>(n) + 1;
    const auto total = static_cast<double>(bleu.totals[n]);
    if (bleu.matches[n] > 0) {
      bleu.precisions[n] = 100.0 * static_cast<double>(bleu.matches[n]) / total;
    } else if (bleu.options.smoothing == BleuSmoothing::exp) {
      halving *= 2;
      bleu.precisions[n] = 100.0 / (halving * total);
    }
  }
  double log_sum = 0;
  for (size_t n = 0; n < static_cast<size_t>(order); ++n) {
    if (bleu.precisions[n] == 0) return;
    log_sum += portable_log(bleu.precisions[n]);
  }
  bleu.score = bleu.brevity_penalty * portable_exp(log_sum / order);
}

}  // namespace

BleuCounts& BleuCounts::operator+=(const BleuCounts& other) {
  for (size_t n = 0; n < kBleuOrder; ++n) {
    matches[n] += other.matches[n];
    totals[n] += other.totals[n];
  }
  hypothesis_length += other.hypothesis_length;
  reference_length += other.reference_length;
  return *this;
}

std::vector<std::string> bleu_tokens(std::string_view line, const BleuOptions& options) {
  const std::string text = options.lowercase ? lowercase_utf8(line) : std::string(line);
  return split_words(separate_words(text, options.tokenizer, options.subwords));
}

std::vector<BleuCounts> bleu_counts(std::span<const std::string> hypotheses,
                                    ReferenceSets references, const BleuOptions& options) {
  check_segments(hypotheses, references, "BLEU");
  std::vector<BleuCounts> counts;
  counts.reserve(hypotheses.size());
  Vocabulary vocabulary;
  WorkProgress progress(Work::evaluate, std::ssize(hypotheses));
  for (size_t i = 0; i < hypotheses.size(); ++i) {
    stop_if_call_is_cancelled("BLEU");
    const auto hypothesis = vocabulary.ids(bleu_tokens(hypotheses[i], options));
    std::vector<std::vector<int64_t>> of_segment;
    for (const auto& set : references)
      of_segment.push_back(vocabulary.ids(bleu_tokens(set[i], options)));
    counts.push_back(count_segment(hypothesis, of_segment));
    progress.add(1);
  }
  progress.finish();
  return counts;
}

BleuScore bleu_score(const BleuCounts& counts, size_t reference_sets, const BleuOptions& options) {
  BleuScore bleu;
  static_cast<BleuCounts&>(bleu) = counts;
  bleu.reference_sets = reference_sets;
  bleu.options = options;
  compute_score(bleu);
  return bleu;
}

BleuScore corpus_bleu(std::span<const std::string> hypotheses, ReferenceSets references,
                      const BleuOptions& options, int threads) {
  check_segments(hypotheses, references, "BLEU");
  const auto sum =
      sum_of_segments<BleuCounts>(hypotheses, references, threads,
                                  [&](std::span<const std::string> part, ReferenceSets of_part) {
                                    return bleu_counts(part, of_part, options);
                                  });
  return bleu_score(sum, references.size(), options);
}

BleuScore corpus_bleu(std::span<const std::string> hypotheses,
                      std::span<const std::string> references, const BleuOptions& options,
                      int threads) {
  return corpus_bleu(hypotheses, ReferenceSets(&references, 1), options, threads);
}

std::string BleuScore::signature(std::string_view resampling) const {
  std::string model;
  if (!options.subwords_checksum.empty()) model = "|model:" + options.subwords_checksum;
  if (!options.mecab_version.empty()) model = "-" + options.mecab_version;
  return concat(
      "nrefs:", reference_sets, "|", resampling, resampling.empty() ? "" : "|",
      "case:", options.lowercase ? "lc" : "mixed", "|eff:", options.effective_order ? "yes" : "no",
      "|tok:", enum_name(options.tokenizer), model,
      "|smooth:", options.smoothing == BleuSmoothing::exp ? "exp" : "none", "|", kMetricVersion);
}

std::string BleuScore::text() const {
  const double ratio = reference_length == 0 ? 0
                                             : static_cast<double>(hypothesis_length) /
                                                   static_cast<double>(reference_length);
  return concat("BLEU = ", fixed(score, 2), " ", fixed(precisions[0], 1), "/",
                fixed(precisions[1], 1), "/", fixed(precisions[2], 1), "/", fixed(precisions[3], 1),
                " (BP = ", fixed(brevity_penalty, 3), " ratio = ", fixed(ratio, 3),
                " hyp_len = ", std::to_string(hypothesis_length),
                " ref_len = ", std::to_string(reference_length), ")");
}

double validation_bleu(std::span<const std::string> hypotheses, ReferenceSets references,
                       int threads) {
  return corpus_bleu(hypotheses, references, {}, threads).score;
}

}  // namespace trafo
