#include "engine/objective/orpo/orpo.h"

#include "engine/data/packed_batch.h"
#include "engine/objective/answers.h"
#include "engine/objective/registry.h"
#include "engine/ops/binary/binary.h"
#include "engine/ops/cast/cast.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/ops/unary/unary.h"
#include "engine/ops/view/view.h"

namespace trafo {
namespace {

constexpr std::string_view kOrpoOrigin = "orpo";
constexpr double kAny = 1e30;
// Of an answer that is certain log(1 - P) would be infinite.
constexpr double kMostLogP = -1e-7;

// 1 for each label that is one, 0 for kIgnoreLabel: [tokens].
Tensor label_mask(Context& context, const Batch& batch, DType dtype) {
  const Tensor ignored =
      ops::compare(context, batch.target_out, double{kIgnoreLabel}, Comparison::not_equal);
  return ops::cast(context, ignored, dtype);
}

// The mean over each sentence: of sums, and of how many were added.
Tensor mean_of_sentences(Context& context, const Tensor& sums, const Tensor& counts) {
  return ops::divide(context, sums, ops::clamp(context, counts, 1, kAny));
}

// log(P / (1 - P)) from log P. log(1 - exp(x)) is log(tanh(-x / 2)) + log(1 + exp(x)), which is
// precise for x near 0 as well.
Tensor log_odds_of(Context& context, const Tensor& log_p) {
  const Tensor x = ops::clamp(context, log_p, -kAny, kMostLogP);
  const Tensor log_not =
      ops::add(context, ops::log(context, ops::tanh(context, ops::scale(context, x, -0.5))),
               ops::log(context, ops::shift(context, ops::exp(context, x), 1)));
  return ops::subtract(context, x, log_not);
}

}  // namespace

std::span<const char* const> Orpo::metrics() const {
  static constexpr const char* kNames[] = {"chosen-reward", "rejected-reward", "reward-margin",
                                           "reward-accuracy", "log-odds"};
  return kNames;
}

ObjectiveOutput Orpo::loss(Context& context, const Model& model, const Batch& batch,
                           const DropoutPass& dropout, double scale) const {
  check_answers(model, batch, kOrpoOrigin);
  const int64_t pairs = batch.sentences / 2;
  const auto in_pairs = [&](const Tensor& values) {
    return ops::reshape(context, values, {pairs, 2});
  };
  const Tensor nll = label_nll(context, model, batch, dropout, {});
  const Tensor labels = label_mask(context, batch, nll.dtype());
  const Tensor weights = batch.target_weights.defined() ? batch.target_weights : labels;
  const Tensor counts = sum_of_sentences(context, batch, weights);
  const Tensor answers = sum_of_sentences(context, batch, ops::multiply(context, nll, weights));
  const Tensor log_p =
      in_pairs(ops::scale(context, mean_of_sentences(context, answers, counts), -1));
  const Tensor log_odds = log_odds_of(context, log_p);

  // The first of both is the right choice. Pairs that pad a batch have no labels and do not count.
  ops::CrossEntropyOptions choice;
  choice.weights = column(context, in_pairs(ops::clamp(context, counts, 0, 1)), 0);
  choice.reduction = Reduction::none;
  choice.labels_validated = true;
  const Tensor preferred =
      ops::cross_entropy(context, log_odds, context.zeros({pairs}, DType::i32), choice).loss;
  const Tensor learned =
      column(context,
             in_pairs(mean_of_sentences(context, sum_of_sentences(context, batch, nll),
                                        sum_of_sentences(context, batch, labels))),
             0);
  ObjectiveOutput output;
  output.loss = scaled_total(
      context, batch, ops::add(context, learned, ops::scale(context, preferred, options_.beta)),
      scale);

  const NoGrad no_grad(context);
  output.nll = scaled_total(context, batch, answers.detach(), scale);
  const Tensor rewards = ops::scale(context, log_p.detach(), options_.beta);
  const Tensor chosen = column(context, rewards, 0), rejected = column(context, rewards, 1);
  const Tensor margin = ops::subtract(context, chosen, rejected);
  const Tensor odds = log_odds.detach();
  const Tensor of_odds = ops::subtract(context, column(context, odds, 0), column(context, odds, 1));
  for (const Tensor& values : {chosen, rejected, margin, is_positive(context, margin), of_odds})
    output.metrics.push_back(
        scaled_total(context, batch, ops::multiply(context, values, choice.weights), scale));
  return output;
}

std::unique_ptr<Objective> make_orpo(const ObjectiveOptions& options,
                                     const std::shared_ptr<const FrozenModel>&) {
  return std::make_unique<Orpo>(OrpoOptions{options.orpo_beta});
}

}  // namespace trafo
