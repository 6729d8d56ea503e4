#include "engine/objective/dpo/dpo.h"

#include "engine/objective/registry.h"
#include "engine/ops/along_dim/along_dim.h"
#include "engine/ops/binary/binary.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/ops/unary/unary.h"
#include "engine/ops/view/view.h"

namespace trafo {
namespace {

constexpr const char* kDpoOrigin = "dpo";

// The sum of `values`, one for each target token, over each sentence: [sentences].
Tensor sum_of_sentences(Context& context, const Batch& batch, const Tensor& values) {
  return ops::scatter_add(context, context.zeros({batch.sentences}, values.dtype()), 0,
                          batch.target_sentences, values);
}

// The negative log-likelihood of each answer, [sentences].
Tensor answer_nll(Context& context, const Model& model, const Batch& batch,
                  const DropoutPass& dropout) {
  const Tensor hidden = model.hidden(context, batch, dropout);
  const OutputProjection output = model.output_projection();
  const Tensor logits = nn::linear(context, hidden, output.weight, output.bias);
  ops::CrossEntropyOptions options;
  options.weights = batch.target_weights;
  options.reduction = Reduction::none;
  options.labels_validated = batch.indices_validated;
  return sum_of_sentences(context, batch,
                          ops::cross_entropy(context, logits, batch.target_out, options).loss);
}

Tensor reference_nll(Context& context, const Model& model, const Batch& batch,
                     const FrozenModel* reference) {
  const NoGrad no_grad(context);
  if (reference != nullptr) return answer_nll(context, *reference->model, batch, {});
  const nn::NoLowRank without_adapter;
  return answer_nll(context, model, batch, {});
}

// Column 0 or 1 of [pairs, 2], as [pairs].
Tensor column(Context& context, const Tensor& x, int64_t i) {
  return ops::reshape(context, ops::slice(context, x, 1, i, i + 1), {x.dim(0)});
}

}  // namespace

std::span<const char* const> Dpo::metrics() const {
  static constexpr const char* kNames[] = {"chosen-reward", "rejected-reward", "reward-margin",
                                           "reward-accuracy"};
  return kNames;
}

void Dpo::check(const Model& model) const {
  require_generation(model.spec(), kDpoOrigin);
  require(reference_ || model.adapter(), ErrorCode::invalid_argument, kDpoOrigin,
          "there is no reference to compare the model with: load one, or train an adapter, "
          "without which the model is its own reference");
}

ObjectiveOutput Dpo::loss(Context& context, const Model& model, const Batch& batch,
                          const DropoutPass& dropout, double scale) const {
  require(!model.parameters().has_int8(), ErrorCode::unsupported, kDpoOrigin,
          "a model with int8 weights has no training loss: it only translates and scores");
  require(batch.target_sentences.defined() && batch.sentences % 2 == 0, ErrorCode::invalid_argument,
          kDpoOrigin, "the batch has no preference pairs, which DPO learns from");
  const Tensor reference = reference_nll(context, model, batch, reference_.get());
  const Tensor nll = answer_nll(context, model, batch, dropout);
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
    return scaled(ops::scale(context, ops::sum(context, values), scale));
  };
  const auto over_pairs = [&](const Tensor& values) {
    return mean(choice.weights.defined() ? ops::multiply(context, values, choice.weights) : values);
  };
  output.nll = mean(nll.detach());
  const Tensor chosen = column(context, rewards.detach(), 0);
  const Tensor rejected = column(context, rewards.detach(), 1);
  const Tensor margin = ops::subtract(context, chosen, rejected);
  const Tensor right = ops::masked_fill(context, context.zeros({pairs}, margin.dtype()),
                                        ops::compare(context, margin, 0.0, Comparison::greater), 1);
  for (const Tensor& values : {chosen, rejected, margin, right})
    output.metrics.push_back(over_pairs(values));
  return output;
}

std::unique_ptr<Objective> make_dpo(const ObjectiveOptions& options,
                                    const std::shared_ptr<const FrozenModel>& reference) {
  return std::make_unique<Dpo>(DpoOptions{options.dpo_beta, options.dpo_label_smoothing},
                               reference);
}

}  // namespace trafo
