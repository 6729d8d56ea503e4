// Cross-entropy with class weights, and of class probabilities: both are sums of other ops.
#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/ops/along_dim/along_dim.h"
#include "engine/ops/binary/binary.h"
#include "engine/ops/cast/cast.h"
#include "engine/ops/checks.h"
#include "engine/ops/cross_entropy/loss_inputs.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/ops/unary/unary.h"
#include "engine/ops/view/view.h"

namespace trafo::ops {
namespace {

void check_class_weights(Context& context, const char* op, int64_t classes, DType dtype,
                         const Tensor& weights) {
  check_input(context, op, "class_weights", weights);
  require(weights.dtype() == stat_dtype(dtype), ErrorCode::dtype_mismatch, op,
          "the class weights are ", dtype_name(weights.dtype()), ", they must be ",
          dtype_name(stat_dtype(dtype)),
          dtype == DType::bf16 ? " with bfloat16 logits" : " as the logits");
  require(weights.rank() == 1 && weights.dim(0) == classes, ErrorCode::shape_mismatch, op,
          "the class weights must be [", classes, "], got ", weights.shape());
  const Tensor values = cast(context, contiguous(context, weights.detach()), DType::f64);
  int64_t v = 0;
  for (const double weight : context.values<double>(values)) {
    require(weight >= 0 && std::isfinite(weight), ErrorCode::invalid_argument, op, "weight ",
            weight, " of class ", v, " is negative or not finite");
    ++v;
  }
}

// Of each row, sum_v mass[v] (lse - x[v]); mass broadcasts to [T, V]. A class without mass whose
// logit is -infinity counts for nothing.
Tensor expected_surprise(Context& context, const Tensor& x, const Tensor& mass) {
  const Tensor shifted = subtract(context, x, max(context, x.detach(), 1, true));
  const Tensor lse = log(context, sum(context, exp(context, shifted), 1, true));
  const Tensor surprise = subtract(context, lse, shifted);
  const Tensor massless = compare(context, mass.detach(), 0, Comparison::equal);
  const Tensor hidden = where(context,
                              compare(context, surprise.detach(),
                                      std::numeric_limits<double>::infinity(), Comparison::equal),
                              massless, context.zeros({1}, DType::i32));
  return sum(context, multiply(context, masked_fill(context, surprise, hidden, 0), mass), 1);
}

Tensor widened(Context& context, const Tensor& tensor) {
  return tensor.dtype() == DType::bf16 ? cast(context, tensor, DType::f32) : tensor;
}

}  // namespace

CrossEntropyOptions with_row_weights(Context& context, const char* op, int64_t classes, DType dtype,
                                     const Tensor& labels, const CrossEntropyOptions& options) {
  if (!options.class_weights.defined()) return options;
  check_class_weights(context, op, classes, dtype, options.class_weights);
  CrossEntropyOptions plain = options;
  plain.class_weights = {};
  // Labels, weights and their shapes, before anything reads by them.
  check_loss_inputs(context, op, labels.rank() == 1 ? labels.dim(0) : 0, classes, dtype, labels,
                    plain);
  const NoGrad no_grad(context);
  const Tensor ignored = compare(context, labels, options.ignore_label, Comparison::equal);
  const Tensor safe = masked_fill(context, labels, ignored, 0);
  plain.weights = classes > 0 ? gather(context, options.class_weights.detach(), 0, safe)
                              : context.zeros(labels.shape(), stat_dtype(dtype));
  if (options.weights.defined())
    plain.weights = multiply(context, plain.weights, options.weights.detach());
  plain.labels_validated = false;  // the sum of the weights has changed
  plain.weight_sum = -1;
  return plain;
}

CrossEntropyOutput class_weighted_cross_entropy(Context& context, const Tensor& logits,
                                                const Tensor& labels,
                                                const CrossEntropyOptions& options) {
  constexpr const char* op = "cross_entropy";
  const int64_t rows = logits.dim(0), classes = logits.dim(1);
  CrossEntropyOptions plain =
      with_row_weights(context, op, classes, logits.dtype(), labels, options);
  const double smoothing = options.label_smoothing;
  if (smoothing == 0 || rows == 0 || classes == 0)
    return cross_entropy(context, logits, labels, plain);
  // (1 - e) of the weighted loss of the label, and e / V of the weighted losses of all classes.
  const LossInputs inputs =
      check_loss_inputs(context, op, rows, classes, logits.dtype(), labels, plain);
  plain.label_smoothing = 0;
  plain.reduction = Reduction::none;
  plain.scale = 1;
  const CrossEntropyOutput of_labels = cross_entropy(context, logits, labels, plain);
  const Tensor counts =
      cast(context, compare(context, labels, options.ignore_label, Comparison::not_equal),
           of_labels.loss.dtype());
  const Tensor mass = reshape(context, options.class_weights.detach(), {1, classes});
  Tensor spread = expected_surprise(context, widened(context, logits), mass);
  if (options.weights.defined()) spread = multiply(context, spread, options.weights.detach());
  spread = select(context, spread, counts);
  CrossEntropyOutput out{add(context, scale(context, of_labels.loss, 1 - smoothing),
                             scale(context, spread, smoothing / static_cast<double>(classes))),
                         of_labels.nll};
  if (options.reduction == Reduction::none) return out;
  out.loss = scale(context, sum(context, out.loss), inputs.scale);
  const NoGrad no_grad(context);
  out.nll = scale(context, sum(context, out.nll), inputs.scale);
  return out;
}

Tensor soft_cross_entropy(Context& context, const Tensor& logits, const Tensor& targets,
                          const CrossEntropyOptions& options) {
  constexpr const char* op = "soft_cross_entropy";
  const OpRange range(context, op, logits, targets);
  check_compute_input(context, op, "logits", logits);
  check_compute_input(context, op, "targets", targets);
  require(logits.rank() == 2, ErrorCode::shape_mismatch, op,
          "the logits must be [tokens, classes], got ", logits.shape());
  require(targets.dtype() == logits.dtype(), ErrorCode::dtype_mismatch, op, "the targets are ",
          dtype_name(targets.dtype()), ", the logits ", dtype_name(logits.dtype()));
  require(targets.shape() == logits.shape(), ErrorCode::shape_mismatch, op, "the targets are ",
          targets.shape(), ", the logits ", logits.shape());
  const int64_t rows = logits.dim(0), classes = logits.dim(1);
  CrossEntropyOptions plain = options;
  plain.class_weights = {};
  const Tensor every = context.zeros({rows}, DType::i32);  // as if each row had a label
  const LossInputs inputs = check_loss_inputs(context, op, rows, std::max<int64_t>(classes, 1),
                                              logits.dtype(), every, plain);
  if (options.class_weights.defined())
    check_class_weights(context, op, classes, logits.dtype(), options.class_weights);
  const double smoothing = options.label_smoothing;
  Tensor mass = widened(context, targets);
  if (smoothing > 0)
    mass = shift(context, scale(context, mass, 1 - smoothing),
                 smoothing / static_cast<double>(std::max<int64_t>(classes, 1)));
  if (options.class_weights.defined())
    mass = multiply(context, mass, reshape(context, options.class_weights.detach(), {1, classes}));
  const Tensor x = widened(context, logits);
  Tensor loss = rows == 0 || classes == 0 ? sum(context, multiply(context, x, mass), 1)
                                          : expected_surprise(context, x, mass);
  if (inputs.weights.defined()) loss = multiply(context, loss, inputs.weights);
  if (options.reduction == Reduction::none) return loss;
  return scale(context, sum(context, loss), inputs.scale);
}

}  // namespace trafo::ops
