#include "engine/objective/kto/kto.h"

#include "engine/core/status.h"
#include "engine/objective/answers.h"
#include "engine/objective/registry.h"
#include "engine/ops/binary/binary.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/ops/unary/unary.h"
#include "engine/ops/view/view.h"

namespace trafo {
namespace {

constexpr std::string_view kKtoOrigin = "kto";
constexpr double kLargestKl = 1e30;

enum KtoMetric : uint8_t {
  desirable_share,
  chosen_reward,
  rejected_reward,
  reward_margin,
  reward_accuracy,
  mean_kl,
  kKtoMetrics
};

// The mean of the ratios that `counted` has, but at least 0: [1].
Tensor kl_of(Context& context, const Tensor& ratios, const Tensor& counted) {
  const NoGrad no_grad(context);
  const Tensor sum = ops::sum(context, ops::multiply(context, ratios.detach(), counted));
  const Tensor count = ops::clamp(context, ops::sum(context, counted), 1, kLargestKl);
  return ops::clamp(context, ops::divide(context, sum, count), 0, kLargestKl);
}

}  // namespace

std::span<const char* const> Kto::metrics() const {
  static constexpr const char* kNames[kKtoMetrics] = {"desirable-share", "chosen-reward",
                                                      "rejected-reward", "reward-margin",
                                                      "reward-accuracy", "kl"};
  return kNames;
}

void Kto::report(std::span<double> means) const {
  means[chosen_reward] /= means[desirable_share];
  means[rejected_reward] /= 1 - means[desirable_share];
  means[reward_margin] = means[chosen_reward] - means[rejected_reward];
}

void Kto::check(const Model& model) const {
  check_reference(model, reference_.get(), kKtoOrigin);
}

ObjectiveOutput Kto::loss(Context& context, const Model& model, const Batch& batch,
                          const DropoutPass& dropout, double scale) const {
  check_answers(model, batch, kKtoOrigin);
  require(batch.target_weights.defined(), ErrorCode::invalid_argument, kKtoOrigin,
          "the batch does not say which answer of a pair is its own");
  const int64_t rows = batch.sentences / 2;
  const Tensor reference = reference_nll(context, model, batch, reference_.get(), {});
  const Tensor nll = answer_nll(context, model, batch, dropout, {});
  const Tensor ratios = ops::reshape(context, ops::subtract(context, reference, nll), {rows, 2});
  // Rows that pad a batch have no weights and do not count.
  const Tensor own = ops::reshape(
      context, ops::clamp(context, sum_of_sentences(context, batch, batch.target_weights), 0, 1),
      {rows, 2});
  const Tensor desirable = column(context, own, 0), undesirable = column(context, own, 1);
  const Tensor real = ops::add(context, desirable, undesirable);
  const Tensor others = ops::subtract(context, ops::reshape(context, real, {rows, 1}), own);
  const Tensor kl = kl_of(context, ratios, others);

  const Tensor ratio = ops::sum(context, ops::multiply(context, ratios, own), 1);
  const Tensor sign = ops::subtract(context, desirable, undesirable);
  const Tensor ahead = ops::multiply(
      context, sign, ops::scale(context, ops::subtract(context, ratio, kl), options_.beta));
  const Tensor weights =
      ops::add(context, ops::scale(context, desirable, options_.desirable_weight),
               ops::scale(context, undesirable, options_.undesirable_weight));
  ObjectiveOutput output;
  output.loss = scaled_total(
      context, batch,
      ops::multiply(context, weights, ops::sigmoid(context, ops::scale(context, ahead, -1))),
      scale);

  const NoGrad no_grad(context);
  const Tensor rewards = ops::scale(context, ratio.detach(), options_.beta);
  const auto total = [&](const Tensor& values) {
    return scaled_total(context, batch, values, scale);
  };
  output.nll = total(ops::multiply(context, ops::reshape(context, nll.detach(), {rows, 2}), own));
  output.metrics.resize(kKtoMetrics);
  output.metrics[desirable_share] = total(desirable);
  output.metrics[chosen_reward] = total(ops::multiply(context, rewards, desirable));
  output.metrics[rejected_reward] = total(ops::multiply(context, rewards, undesirable));
  output.metrics[reward_margin] = output.metrics[chosen_reward];  // report() makes it
  output.metrics[reward_accuracy] = total(is_positive(context, ahead.detach()));
  output.metrics[mean_kl] = total(ops::multiply(context, real, kl));
  return output;
}

std::unique_ptr<Objective> make_kto(const ObjectiveOptions& options,
                                    const std::shared_ptr<const FrozenModel>& reference) {
  return std::make_unique<Kto>(
      KtoOptions{options.kto_beta, options.kto_desirable_weight, options.kto_undesirable_weight},
      reference);
}

}  // namespace trafo
