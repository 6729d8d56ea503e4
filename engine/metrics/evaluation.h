// Translations against their references: BLEU and chrF, with intervals and against a baseline.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/metrics/bleu.h"
#include "engine/metrics/chrf.h"

namespace trafo {

struct EvaluationOptions {
#include "engine/metrics/generated/evaluation_options.inc"

  // Of tokenizer flores200: see BleuOptions.
  SubwordFunction subwords = {};
  std::string subwords_checksum = {};
};

// INVALID_ARGUMENT naming the option.
void validate(const EvaluationOptions& options);

// A score and, if it was resampled, its mean, half of its 95 % interval, and the p-value of its
// difference from the baseline's.
struct ResampledScore {
  double score = 0;
  std::optional<double> mean, half_width, p_value;
};

struct Evaluation {
  BleuScore bleu_parts;
  ResampledScore bleu, chrf, baseline_bleu, baseline_chrf;  // the baseline's have no p-value
  std::string bleu_signature, chrf_signature;
  size_t unspaced_references = 0;  // lines of all sets: see is_unspaced()
};

// `baseline`: other translations of the same lines, or empty. INVALID_ARGUMENT: see corpus_bleu();
// tokenize flores200 without `subwords`. UNSUPPORTED: tokenize ja_mecab without MeCab or IPADIC.
Evaluation evaluate(std::span<const std::string> hypotheses, ReferenceSets references,
                    std::span<const std::string> baseline, const EvaluationOptions& options);

// Each translation by itself against its one reference, as sacreBLEU's sentence_bleu (orders longer
// than the translation are left out) and sentence_chrf. Of the options, `tokenize`, `subwords` and
// `lowercase` are used. `references` has as many lines as `hypotheses`. INVALID_ARGUMENT: see
// evaluate().
std::vector<double> sentence_bleu(std::span<const std::string> hypotheses,
                                  std::span<const std::string> references,
                                  const EvaluationOptions& options);
std::vector<double> sentence_chrf(std::span<const std::string> hypotheses,
                                  std::span<const std::string> references);

}  // namespace trafo
