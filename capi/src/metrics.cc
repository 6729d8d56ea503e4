// Metrics: BLEU, chrF, evaluation with a baseline.
#include "engine/metrics/bleu.h"

#include <algorithm>
#include <limits>

#include "capi/src/options.h"
#include "capi/src/text_handles.h"
#include "engine/core/cancel_scope.h"
#include "engine/metrics/chrf.h"
#include "engine/metrics/evaluation.h"
#include "engine/metrics/registry.h"
#include "engine/text/tokenizer/sentencepiece/sentencepiece_model.h"

using namespace trafo;
using namespace trafo::capi;

namespace {

constexpr double kNoScore = std::numeric_limits<double>::quiet_NaN();

trafo_resampled_score score_to_c(const ResampledScore& score) {
  return {score.score, score.mean.value_or(kNoScore), score.half_width.value_or(kNoScore),
          score.p_value.value_or(kNoScore)};
}

template <size_t Size>
void copy_signature(char (&to)[Size], const std::string& signature) {
  require(signature.size() < Size, ErrorCode::internal, "trafo_evaluate", "the signature ",
          signature, " is too long");
  signature.copy(to, signature.size());  // the struct was zeroed
}

trafo_evaluation evaluation_to_c(const Evaluation& evaluation, bool has_baseline) {
  trafo_evaluation c{};
  c.struct_size = sizeof c;
  c.bleu = score_to_c(evaluation.bleu);
  c.chrf = score_to_c(evaluation.chrf);
  const trafo_resampled_score none{kNoScore, kNoScore, kNoScore, kNoScore};
  c.baseline_bleu = has_baseline ? score_to_c(evaluation.baseline_bleu) : none;
  c.baseline_chrf = has_baseline ? score_to_c(evaluation.baseline_chrf) : none;
  const BleuScore& bleu = evaluation.bleu_parts;
  std::copy(bleu.precisions.begin(), bleu.precisions.end(), c.bleu_precisions);
  c.bleu_brevity_penalty = bleu.brevity_penalty;
  std::copy(bleu.matches.begin(), bleu.matches.end(), c.bleu_matches);
  std::copy(bleu.totals.begin(), bleu.totals.end(), c.bleu_totals);
  c.hypothesis_tokens = bleu.hypothesis_length;
  c.reference_tokens = bleu.reference_length;
  c.unspaced_references = static_cast<int64_t>(evaluation.unspaced_references);
  copy_signature(c.bleu_signature, evaluation.bleu_signature);
  copy_signature(c.chrf_signature, evaluation.chrf_signature);
  return c;
}

// The argument `references`: sets of `count` lines, one after the other.
class References {
 public:
  References(const Call& call, const trafo_string_view* references, size_t count,
             size_t reference_sets) {
    if (count == 0) call.refuse("there are no hypotheses");
    if (reference_sets == 0) call.refuse("there are no references: reference_sets is 0");
    if (reference_sets > Call::kAddressSpace / count)
      call.refuse("reference_sets ", reference_sets, " is impossible");
    lines_ = lines_argument(call, references, count * reference_sets, "references");
    for (size_t i = 0; i < reference_sets; ++i)
      sets_.push_back(std::span<const std::string>(lines_).subspan(i * count, count));
  }
  ReferenceSets sets() const { return sets_; }

 private:
  std::vector<std::string> lines_;
  std::vector<std::span<const std::string>> sets_;
};

// The options with the tokenizer of tokenize flores200.
EvaluationOptions options_argument(const Call& call, const trafo_evaluation_options* options) {
  const trafo_evaluation_options c = read_options(call, options);
  EvaluationOptions result = from_c(call, c);
  if (!c.tokenizer) return result;
  const TokenizerObject& object = call.handle(c.tokenizer, "tokenizer");
  if (result.tokenize != BleuTokenizer::flores200)
    call.refuse("a tokenizer is given, but tokenize is not TRAFO_TOKENIZE_FLORES200");
  if (!object.tokenizer.as_sentencepiece())
    call.refuse(
        "TRAFO_TOKENIZE_FLORES200 takes a SentencePiece model, the tokenizer is of the kind ",
        object.tokenizer.kind());
  result.subwords = [tokenizer = object.tokenizer](std::string_view line) {
    return tokenizer.as_sentencepiece()->encode_as_text(line);
  };
  result.subwords_checksum = object.checksum;
  return result;
}

}  // namespace

trafo_error* trafo_bleu(const trafo_string_view* hypotheses, const trafo_string_view* references,
                        size_t count, int32_t lowercase, double* out_score, char** out_signature) {
  return api(__func__, [&](const Call& call) {
    if (out_signature) *out_signature = nullptr;
    call.out(out_score, "out_score");
    BleuOptions options;
    options.lowercase = call.flag(lowercase, "lowercase");
    const BleuScore result =
        corpus_bleu(lines_argument(call, hypotheses, count, "hypotheses"),
                    lines_argument(call, references, count, "references"), options);
    if (out_signature) *out_signature = copy_string(result.signature());
    *out_score = result.score;
  });
}

trafo_error* trafo_chrf(const trafo_string_view* hypotheses, const trafo_string_view* references,
                        size_t count, double* out_score, char** out_signature) {
  return api(__func__, [&](const Call& call) {
    if (out_signature) *out_signature = nullptr;
    call.out(out_score, "out_score");
    const ChrfScore result = corpus_chrf(lines_argument(call, hypotheses, count, "hypotheses"),
                                         lines_argument(call, references, count, "references"));
    if (out_signature) *out_signature = copy_string(result.signature());
    *out_score = result.score;
  });
}

trafo_error* trafo_metric_score(int32_t metric, const trafo_string_view* hypotheses,
                                const trafo_string_view* references, size_t count,
                                size_t reference_sets, double* out_score) {
  return api(__func__, [&](const Call& call) {
    call.out(out_score, "out_score");
    const auto known = std::ranges::find(metrics(), metric, &Metric::bit);
    if (known == metrics().end())
      call.refuse_argument("metric", " is ", metric, ", which is no TRAFO_METRIC_*");
    if (!known->needs_translations())
      call.refuse_argument("metric", " ", known->name, " needs a model, not translations");
    const References all(call, references, count, reference_sets);
    *out_score = known->score(lines_argument(call, hypotheses, count, "hypotheses"), all.sets(), 1);
  });
}

trafo_error* trafo_evaluate(const trafo_string_view* hypotheses,
                            const trafo_string_view* references, size_t count,
                            size_t reference_sets, const trafo_string_view* baseline,
                            const trafo_evaluation_options* options, const trafo_cancel* cancel,
                            trafo_evaluation* out, size_t struct_size) {
  return api(__func__, [&](const Call& call) {
    call.out_struct(out, struct_size);
    const References all(call, references, count, reference_sets);
    const EvaluationOptions chosen = options_argument(call, options);
    const auto system = lines_argument(call, hypotheses, count, "hypotheses");
    std::vector<std::string> others;
    if (baseline) others = lines_argument(call, baseline, count, "baseline");
    const CancelArgument token(call, cancel);
    const CancelScope scope(token.get());
    init_options(
        call, out, struct_size,
        evaluation_to_c(evaluate(system, all.sets(), others, chosen), baseline != nullptr));
  });
}

trafo_error* trafo_sentence_scores(const trafo_string_view* hypotheses,
                                   const trafo_string_view* references, size_t count,
                                   const trafo_evaluation_options* options, double* out_bleu,
                                   double* out_chrf) {
  return api(__func__, [&](const Call& call) {
    if (!out_bleu && !out_chrf) call.refuse_argument("out_bleu", " and out_chrf are both NULL");
    if (count == 0) call.refuse("there are no hypotheses");
    const EvaluationOptions chosen = options_argument(call, options);
    const auto system = lines_argument(call, hypotheses, count, "hypotheses");
    const auto reference = lines_argument(call, references, count, "references");
    std::vector<double> bleu, chrf;
    if (out_bleu) bleu = sentence_bleu(system, reference, chosen);
    if (out_chrf) chrf = sentence_chrf(system, reference);
    std::copy(bleu.begin(), bleu.end(), out_bleu);
    std::copy(chrf.begin(), chrf.end(), out_chrf);
  });
}
