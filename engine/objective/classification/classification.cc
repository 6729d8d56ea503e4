#include "engine/objective/classification/classification.h"

#include "engine/objective/registry.h"
#include "engine/ops/along_dim/along_dim.h"
#include "engine/ops/binary/binary.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/ops/unary/unary.h"

namespace trafo {

std::span<const char* const> Classification::metrics() const {
  static constexpr const char* kNames[] = {"accuracy"};
  return kNames;
}

void Classification::check(const Model& model) const {
  const EncoderHead head = model.spec().head.kind;
  require(head == EncoderHead::sequence || head == EncoderHead::token, ErrorCode::invalid_argument,
          "classification",
          "the model has no head for labels: give an encoder one (import --head)");
  require(model.labels().size() >= 2, ErrorCode::invalid_argument, "classification",
          "the head has one label, which is a regression: there is nothing to choose");
}

ObjectiveOutput Classification::loss(Context& context, const Model& model, const Batch& batch,
                                     const DropoutPass& dropout, double scale) const {
  require(!model.parameters().has_int8(), ErrorCode::unsupported, "classification",
          "a model with int8 weights has no training loss");
  const Tensor hidden = model.hidden(context, batch, dropout);
  const OutputProjection output = model.output_projection();
  const Tensor logits = nn::linear(context, hidden, output.weight, output.bias);
  ops::CrossEntropyOptions options;
  options.weights = batch.target_weights;
  options.reduction = Reduction::sum;
  options.scale = scale;
  options.labels_validated = batch.indices_validated;
  const ops::CrossEntropyOutput loss =
      ops::cross_entropy(context, logits, batch.target_out, options);

  const NoGrad no_grad(context);
  const Tensor found = ops::compare(context, ops::argmax(context, logits.detach(), 1),
                                    batch.target_out, Comparison::equal);
  Tensor right = ops::masked_fill(
      context, context.zeros({logits.dim(0)}, stat_dtype(logits.dtype())), found, 1);
  if (batch.target_weights.defined()) right = ops::multiply(context, right, batch.target_weights);
  return {loss.loss, loss.nll, {ops::scale(context, ops::sum(context, right), scale)}};
}

std::unique_ptr<Objective> make_classification(const ObjectiveOptions&,
                                               const std::shared_ptr<const FrozenModel>&) {
  return std::make_unique<Classification>();
}

}  // namespace trafo
