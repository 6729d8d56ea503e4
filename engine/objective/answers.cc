#include "engine/objective/answers.h"

#include "engine/core/status.h"
#include "engine/ops/along_dim/along_dim.h"
#include "engine/ops/binary/binary.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/ops/unary/unary.h"
#include "engine/ops/view/view.h"

namespace trafo {

void check_answers(const Model& model, const Batch& batch, std::string_view name) {
  require(!model.parameters().has_int8(), ErrorCode::unsupported, name,
          "a model with int8 weights has no training loss: it only translates and scores");
  require(batch.target_sentences.defined() && batch.sentences % 2 == 0, ErrorCode::invalid_argument,
          name, "the batch has no preference pairs, which ", name, " learns from");
}

void check_reference(const Model& model, const FrozenModel* reference, std::string_view name) {
  require(reference != nullptr || model.adapter(), ErrorCode::invalid_argument, name,
          "there is no reference to compare the model with: load one, or train an adapter, "
          "without which the model is its own reference");
}

Tensor label_nll(Context& context, const Model& model, const Batch& batch,
                 const DropoutPass& dropout, const Tensor& weights) {
  const Tensor hidden = model.hidden(context, batch, dropout);
  const Tensor logits = project_logits(context, hidden, model.output_projection());
  ops::CrossEntropyOptions options;
  options.weights = weights;
  options.reduction = Reduction::none;
  options.labels_validated = batch.indices_validated;
  return ops::cross_entropy(context, logits, batch.target_out, options).loss;
}

Tensor sum_of_sentences(Context& context, const Batch& batch, const Tensor& values) {
  return ops::scatter_add(context, context.zeros({batch.sentences}, values.dtype()), 0,
                          batch.target_sentences, values);
}

Tensor answer_nll(Context& context, const Model& model, const Batch& batch,
                  const DropoutPass& dropout, const Tensor& weights) {
  return sum_of_sentences(context, batch, label_nll(context, model, batch, dropout, weights));
}

Tensor reference_nll(Context& context, const Model& model, const Batch& batch,
                     const FrozenModel* reference, const Tensor& weights) {
  const NoGrad no_grad(context);
  if (reference != nullptr) return answer_nll(context, *reference->model, batch, {}, weights);
  const nn::NoLowRank without_adapter;
  return answer_nll(context, model, batch, {}, weights);
}

Tensor column(Context& context, const Tensor& x, int64_t i) {
  return ops::reshape(context, ops::slice(context, x, 1, i, i + 1), {x.dim(0)});
}

Tensor is_positive(Context& context, const Tensor& values) {
  return ops::masked_fill(context, context.zeros(values.shape(), values.dtype()),
                          ops::compare(context, values, 0.0, Comparison::greater), 1);
}

Tensor scaled_total(Context& context, const Batch& batch, const Tensor& values, double scale) {
  const Tensor sum = ops::scale(context, ops::sum(context, values), scale);
  return batch.loss_scale.defined() ? ops::multiply(context, sum, batch.loss_scale) : sum;
}

}  // namespace trafo
