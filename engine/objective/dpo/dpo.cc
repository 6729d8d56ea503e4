#include "engine/objective/dpo/dpo.h"

#include "engine/objective/answers.h"
#include "engine/objective/registry.h"
#include "engine/ops/binary/binary.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/unary/unary.h"
#include "engine/ops/view/view.h"

namespace trafo {
namespace {

constexpr const char* kDpoOrigin = "dpo";

}  // namespace

std::span<const char* const> Dpo::metrics() const {
  static constexpr const char* kNames[] = {"chosen-reward", "rejected-reward", "reward-margin",
                                           "reward-accuracy"};
  return kNames;
}

void Dpo::check(const Model& model) const {
  require_generation(model.spec(), kDpoOrigin);
  check_reference(model, reference_.get(), kDpoOrigin);
}

ObjectiveOutput Dpo::loss(Context& context, const Model& model, const Batch& batch,
                          const DropoutPass& dropout, double scale) const {
  check_answers(model, batch, kDpoOrigin);
  const Tensor reference =
      reference_nll(context, model, batch, reference_.get(), batch.target_weights);
  const Tensor nll = answer_nll(context, model, batch, dropout, batch.target_weights);
  const int64_t pairs = batch.sentences / 2;
  const Tensor rewards = ops::reshape(
      context, ops::scale(context, ops::subtract(context, reference, nll), options_.beta),
      {pairs, 2});
  const auto scaled = [&](const Tensor& sum) {
    return batch.loss_scale.defined() ? ops::multiply(context, sum, batch.loss_scale) : sum;
  };

  // The first of both is the right choice. Pairs that pad a batch have no labels and do not count.
  ops::CrossEntropyOptions choice;
  if (batch.target_weights.defined())
    choice.weights = column(
        context,
        ops::reshape(
            context,
            ops::clamp(context, sum_of_sentences(context, batch, batch.target_weights), 0, 1),
            {pairs, 2}),
        0);
  choice.label_smoothing = 2 * options_.label_smoothing;  // spread over both
  choice.reduction = Reduction::sum;
  choice.scale = scale;
  choice.labels_validated = true;
  ObjectiveOutput output;
  output.loss =
      scaled(ops::cross_entropy(context, rewards, context.zeros({pairs}, DType::i32), choice).loss);

  const NoGrad no_grad(context);
  const auto mean = [&](const Tensor& values) {
    return scaled_total(context, batch, values, scale);
  };
  const auto over_pairs = [&](const Tensor& values) {
    return mean(choice.weights.defined() ? ops::multiply(context, values, choice.weights) : values);
  };
  output.nll = mean(nll.detach());
  const Tensor chosen = column(context, rewards.detach(), 0);
  const Tensor rejected = column(context, rewards.detach(), 1);
  const Tensor margin = ops::subtract(context, chosen, rejected);
  for (const Tensor& values : {chosen, rejected, margin, is_positive(context, margin)})
    output.metrics.push_back(over_pairs(values));
  return output;
}

std::unique_ptr<Objective> make_dpo(const ObjectiveOptions& options,
                                    const std::shared_ptr<const FrozenModel>& reference) {
  return std::make_unique<Dpo>(DpoOptions{options.dpo_beta, options.dpo_label_smoothing},
                               reference);
}

}  // namespace trafo
