#include "engine/metrics/evaluation.h"

#include <utility>

#include "engine/core/argument_error.h"
#include "engine/core/status.h"
#include "engine/metrics/bootstrap.h"
#include "engine/metrics/generated/evaluation_options_fields.h"
#include "engine/metrics/unspaced.h"

namespace trafo {
namespace {

constexpr const char* kEvaluationOrigin = "evaluation";

template <class Counts>
Counts sum_of(const std::vector<Counts>& segments) {
  Counts sum;
  for (const Counts& segment : segments) sum += segment;
  return sum;
}

// Fills in what resampling gives. `score`: of counts.
template <class Counts, class Score>
void resample(const Resamples& resamples, const std::vector<Counts>& system,
              const std::vector<Counts>& baseline, Score score, ResampledScore& of_system,
              ResampledScore& of_baseline) {
  const std::vector<double> scores = resamples.scores(std::span(system), score);
  const auto fill = [](const std::vector<double>& each, ResampledScore& result) {
    const Interval interval = interval_of(each);
    result.mean = interval.mean;
    result.half_width = interval.half_width;
  };
  fill(scores, of_system);
  if (baseline.empty()) return;
  const std::vector<double> others = resamples.scores(std::span(baseline), score);
  fill(others, of_baseline);
  of_system.p_value = paired_p_value(scores, others, of_system.score - of_baseline.score);
}

BleuOptions bleu_options(const EvaluationOptions& options) {
  BleuOptions bleu;
  bleu.tokenizer = options.tokenize;
  bleu.lowercase = options.lowercase;
  if (options.tokenize == BleuTokenizer::flores200) {
    bleu.subwords = options.subwords;
    bleu.subwords_checksum = options.subwords_checksum;
  } else if (options.tokenize == BleuTokenizer::ja_mecab) {
    JapaneseWords japanese = load_japanese_words();
    bleu.subwords = std::move(japanese.words);
    bleu.mecab_version = std::move(japanese.version);
  }
  return bleu;
}

}  // namespace

void validate(const EvaluationOptions& options) {
  for_each_field_of_evaluation(options, [](const OptionField& field, const auto& value) {
    check_option(kEvaluationOrigin, field, value);
  });
  require_argument(options.tokenize != BleuTokenizer::flores200 || options.subwords != nullptr,
                   kEvaluationOrigin, "tokenize", " flores200 needs a SentencePiece model");
}

Evaluation evaluate(std::span<const std::string> hypotheses, ReferenceSets references,
                    std::span<const std::string> baseline, const EvaluationOptions& options) {
  validate(options);
  const BleuOptions bleu = bleu_options(options);
  const ChrfOptions chrf;
  const auto bleu_segments = bleu_counts(hypotheses, references, bleu);
  const auto chrf_segments = chrf_counts(hypotheses, references, chrf);
  std::vector<BleuCounts> bleu_baseline;
  std::vector<ChrfCounts> chrf_baseline;
  const size_t sets = references.size();
  const auto bleu_of = [&](const BleuCounts& c) { return bleu_score(c, sets, bleu).score; };
  const auto chrf_of = [&](const ChrfCounts& c) { return chrf_score(c, sets, chrf).score; };

  Evaluation result;
  result.bleu_parts = bleu_score(sum_of(bleu_segments), sets, bleu);
  result.bleu.score = result.bleu_parts.score;
  const ChrfScore chrf_parts = chrf_score(sum_of(chrf_segments), sets, chrf);
  result.chrf.score = chrf_parts.score;
  if (!baseline.empty()) {
    bleu_baseline = bleu_counts(baseline, references, bleu);
    chrf_baseline = chrf_counts(baseline, references, chrf);
    result.baseline_bleu.score = bleu_of(sum_of(bleu_baseline));
    result.baseline_chrf.score = chrf_of(sum_of(chrf_baseline));
  }
  std::string resampling;
  if (options.confidence || !baseline.empty()) {
    const Resamples resamples(hypotheses.size(), options.resamples, options.seed);
    resample(resamples, bleu_segments, bleu_baseline, bleu_of, result.bleu, result.baseline_bleu);
    resample(resamples, chrf_segments, chrf_baseline, chrf_of, result.chrf, result.baseline_chrf);
    resampling = concat("bs:", options.resamples, "|seed:", options.seed);
  }
  result.bleu_signature = result.bleu_parts.signature(resampling);
  result.chrf_signature = chrf_parts.signature(resampling);
  for (const auto& set : references) result.unspaced_references += count_unspaced(set);
  return result;
}

std::vector<double> sentence_bleu(std::span<const std::string> hypotheses,
                                  std::span<const std::string> references,
                                  const EvaluationOptions& options) {
  validate(options);
  BleuOptions bleu = bleu_options(options);
  bleu.effective_order = true;
  std::vector<double> scores;
  for (const BleuCounts& counts : bleu_counts(hypotheses, ReferenceSets(&references, 1), bleu))
    scores.push_back(bleu_score(counts, 1, bleu).score);
  return scores;
}

std::vector<double> sentence_chrf(std::span<const std::string> hypotheses,
                                  std::span<const std::string> references) {
  const ChrfOptions chrf;
  std::vector<double> scores;
  for (const ChrfCounts& counts : chrf_counts(hypotheses, ReferenceSets(&references, 1), chrf))
    scores.push_back(chrf_score(counts, 1, chrf).score);
  return scores;
}

}  // namespace trafo
