#include "engine/decode/scorer.h"

#include <cmath>
#include <numeric>

#include "engine/core/argument_error.h"
#include "engine/core/progress.h"
#include "engine/ops/cross_entropy/cross_entropy.h"

namespace trafo {
namespace {

constexpr const char* kScorerOrigin = "score";

int64_t decoder_tokens(const ModelSpec& spec, const SentencePair& pair) {
  const size_t source = !spec.has_encoder() ? pair.source.size() - 1 : 0;
  return static_cast<int64_t>(source + pair.target.size());
}

void check_side(const char* origin, const ModelSpec& spec, int32_t eos,
                const std::vector<int32_t>& side, const char* name, size_t number, bool ended,
                int64_t vocabulary) {
  require(!side.empty() && (!ended || side.back() == eos), ErrorCode::invalid_argument, origin,
          "the ", name, " of pair ", number,
          ended ? concat(" must end with eos, token ", eos) : std::string(" is empty"));
  for (const int32_t id : side)
    require(id >= 0 && id < vocabulary, ErrorCode::invalid_argument, origin, "the ", name,
            " of pair ", number, " has token ", id, ", the vocabulary has 0 to ", vocabulary - 1);
  require(static_cast<int64_t>(side.size()) <= spec.max_positions, ErrorCode::invalid_argument,
          origin, "the ", name, " of pair ", number, " has ", side.size(),
          " tokens, the model takes at most ", spec.max_positions);
}

}  // namespace

void check_pairs(const char* origin, const ModelSpec& spec, const SpecialTokens& tokens,
                 std::span<const SentencePair> pairs, bool ended) {
  require_generation(spec, origin);
  for (size_t i = 0; i < pairs.size(); ++i) {
    check_side(origin, spec, tokens.eos, pairs[i].source, "source", i + 1, ended,
               spec.source_vocabulary());
    check_side(origin, spec, tokens.eos, pairs[i].target, "target", i + 1, ended, spec.vocabulary);
    require(decoder_tokens(spec, pairs[i]) <= spec.max_positions, ErrorCode::invalid_argument,
            origin, "pair ", i + 1, " has ", decoder_tokens(spec, pairs[i]),
            " tokens in one stream, the model takes at most ", spec.max_positions);
  }
}

Tensor label_nll(Context& context, const Model& model, const Batch& batch, int32_t ignore_label) {
  ops::CrossEntropyOptions options;
  options.ignore_label = ignore_label;
  options.reduction = Reduction::none;
  options.labels_validated = batch.indices_validated;
  return ops::cross_entropy(context, model.logits(context, batch), batch.target_out, options).nll;
}

std::vector<PairScore> score(Context& context, const Model& model,
                             std::span<const SentencePair> pairs, const ScoreOptions& options) {
  const ModelSpec& spec = model.spec();
  require_argument(options.batch_tokens >= 1, kScorerOrigin, "batch_tokens",
                   " must be 1 or more, got ", options.batch_tokens);
  check_pairs(kScorerOrigin, spec, options.tokens, pairs, options.ended);

  const NoGrad no_grad(context);
  std::vector<PairScore> scores(pairs.size());
  std::vector<int64_t> order(pairs.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  const auto tokens_of = [&](int64_t i) {
    return decoder_tokens(spec, pairs[static_cast<size_t>(i)]);
  };
  WorkProgress progress(Work::score, std::ssize(pairs));
  for (const std::vector<int64_t>& group :
       group_by_length(order, options.batch_tokens, tokens_of)) {
    stop_if_cancelled(options.cancel, kScorerOrigin);
    std::vector<const SentencePair*> members;
    for (const int64_t i : group) members.push_back(&pairs[static_cast<size_t>(i)]);
    const Batch batch = pack_pairs(context, spec, options.tokens, members);
    const std::vector<double> nll =
        to_doubles(context, label_nll(context, model, batch, kIgnoreLabel));
    size_t row = 0;
    for (const int64_t i : group) {
      PairScore& result = scores[static_cast<size_t>(i)];
      result.tokens = static_cast<int64_t>(pairs[static_cast<size_t>(i)].target.size());
      result.word_scores.reserve(static_cast<size_t>(result.tokens));
      row += static_cast<size_t>(tokens_of(i) - result.tokens);  // the source of a decoder_lm
      for (int64_t t = 0; t < result.tokens; ++t) {
        const double word_score = -nll[row++];
        result.word_scores.push_back(word_score);
        result.log_probability += word_score;
      }
      require(std::isfinite(result.log_probability), ErrorCode::non_finite, kScorerOrigin,
              "the model gives pair ", i + 1, " a log-probability of ", result.log_probability,
              ": its weights or their products are not finite");
    }
    progress.add(std::ssize(group));
  }
  progress.finish();
  return scores;
}

}  // namespace trafo
