#include "engine/ops/distillation/distillation.h"

#include <cmath>

#include "engine/ops/binary/binary.h"
#include "engine/ops/cast/cast.h"
#include "engine/ops/checks.h"
#include "engine/ops/cross_entropy/loss_inputs.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/ops/unary/unary.h"
#include "engine/ops/view/view.h"

namespace trafo::ops {
namespace {

constexpr const char* kDistillationOp = "distillation";

void check_both_logits(const Context& context, const Tensor& logits, const Tensor& teacher,
                       const DistillationOptions& options) {
  check_compute_input(context, kDistillationOp, "logits", logits);
  check_compute_input(context, kDistillationOp, "teacher_logits", teacher);
  check_same_dtype(kDistillationOp, "logits", logits, "teacher_logits", teacher);
  require(logits.rank() == 2, ErrorCode::shape_mismatch, kDistillationOp,
          "the logits must be [tokens, classes], got ", logits.shape());
  require(teacher.shape() == logits.shape(), ErrorCode::shape_mismatch, kDistillationOp,
          "the logits of the teacher are ", teacher.shape(), ", the logits ", logits.shape());
  check_mixture(kDistillationOp, options.share, options.temperature);
  require(!options.loss.class_weights.defined(), ErrorCode::unsupported, kDistillationOp,
          "class weights do not go with a teacher");
}

// log softmax(x / h) of each row.
Tensor log_probabilities(Context& context, const Tensor& x, double temperature) {
  const Tensor shifted =
      scale(context, subtract(context, x, max(context, x.detach(), 1, true)), 1 / temperature);
  return subtract(context, shifted, log(context, sum(context, exp(context, shifted), 1, true)));
}

}  // namespace

void check_mixture(const char* op, double share, double temperature) {
  require(share >= 0 && share <= 1, ErrorCode::invalid_argument, op,
          "the share of the teacher must be 0 to 1, got ", share);
  require(temperature > 0 && std::isfinite(temperature), ErrorCode::invalid_argument, op,
          "the temperature must be above 0 and finite, got ", temperature);
}

CrossEntropyOutput distillation(Context& context, const Tensor& logits,
                                const Tensor& teacher_logits, const Tensor& labels,
                                const DistillationOptions& options) {
  const OpRange range(context, kDistillationOp, logits, teacher_logits, labels);
  check_both_logits(context, logits, teacher_logits, options);
  if (options.share == 0) return cross_entropy(context, logits, labels, options.loss);
  if (!context.fused_kernels())
    return distillation_reference(context, logits, teacher_logits, labels, options);
  const int64_t rows = logits.dim(0), classes = logits.dim(1);
  const DType dtype = logits.dtype(), sums = stat_dtype(dtype);
  const LossInputs inputs =
      check_loss_inputs(context, kDistillationOp, rows, classes, dtype, labels, options.loss);
  const Tensor x = contiguous(context, logits);
  const Tensor y = contiguous(context, teacher_logits.detach());
  const Tensor loss = context.empty({rows}, sums), nll = context.empty({rows}, sums);
  const Tensor stats = context.empty({rows, kDistillationStats}, sums);
  DistillationForwardParams params{};
  params.dtype = dtype;
  params.share = options.share;
  params.temperature = options.temperature;
  params.label_smoothing = options.loss.label_smoothing;
  params.ignore_label = options.loss.ignore_label;
  params.rows = rows;
  params.classes = params.stride = classes;
  params.logits = x.raw();
  params.teacher = y.raw();
  params.labels = static_cast<const int32_t*>(inputs.labels.raw());
  params.weights = inputs.weights.defined() ? inputs.weights.raw() : nullptr;
  params.loss = loss.raw();
  params.nll = nll.raw();
  params.stats = stats.raw();
  launch(context, OpKernel::distillation_forward, kDistillationOp, params);

  CrossEntropyOutput out{loss, nll};
  const bool per_row = options.loss.reduction == Reduction::none;
  if (!per_row) {
    out.loss = scaled_sum(context, kDistillationOp, loss, inputs.scale);
    out.nll = scaled_sum(context, kDistillationOp, nll, inputs.scale);
  }
  if (!context.needs_grad({x})) return out;
  context.record(kDistillationOp, {x}, {&out.loss},
                 {{"logits", x},
                  {"teacher_logits", y},
                  {"labels", inputs.labels},
                  {"weights", inputs.weights}},
                 [x = x.detach(), y, stats, inputs, per_row, options](Backward& b) {
                   const Tensor dloss = b.grad_output();
                   const GradTarget target = b.target(0);
                   DistillationBackwardParams p{};
                   p.dtype = x.dtype();
                   p.share = options.share;
                   p.temperature = options.temperature;
                   p.label_smoothing = options.loss.label_smoothing;
                   p.ignore_label = options.loss.ignore_label;
                   p.rows = x.dim(0);
                   p.classes = x.dim(1);
                   p.accumulate = target.accumulate;
                   p.logits = x.raw();
                   p.teacher = y.raw();
                   p.labels = static_cast<const int32_t*>(inputs.labels.raw());
                   p.weights = inputs.weights.defined() ? inputs.weights.raw() : nullptr;
                   p.stats = stats.raw();
                   p.dloss = dloss.raw();
                   p.per_row = per_row;
                   p.scale = inputs.scale;
                   p.dlogits = target.buffer.raw();
                   launch(b.context(), OpKernel::distillation_backward, kDistillationOp, p);
                 });
  return out;
}

CrossEntropyOutput distillation_reference(Context& context, const Tensor& logits,
                                          const Tensor& teacher_logits, const Tensor& labels,
                                          const DistillationOptions& options) {
  check_both_logits(context, logits, teacher_logits, options);
  const double share = options.share, temperature = options.temperature;
  if (share == 0) return cross_entropy_reference(context, logits, labels, options.loss);
  const auto widened = [&](const Tensor& tensor) {
    return tensor.dtype() == DType::bf16 ? cast(context, tensor, DType::f32) : tensor;
  };
  const Tensor x = widened(logits), y = widened(teacher_logits.detach());
  const int64_t rows = x.dim(0), classes = x.dim(1);
  const LossInputs inputs =
      check_loss_inputs(context, kDistillationOp, rows, classes, x.dtype(), labels, options.loss);
  CrossEntropyOptions of_labels = options.loss;
  of_labels.reduction = Reduction::none;
  of_labels.scale = 1;
  CrossEntropyOutput out = cross_entropy_reference(context, x, labels, of_labels);
  if (rows > 0 && classes > 0) {
    const Tensor counts = cast(
        context, compare(context, inputs.labels, options.loss.ignore_label, Comparison::not_equal),
        x.dtype());
    // Selected, so that NaN and infinities of ignored rows do not get through.
    const Tensor of_row = reshape(context, counts, {rows, 1});
    const Tensor log_p = log_probabilities(context, select(context, x, of_row), temperature);
    const Tensor log_q = log_probabilities(context, select(context, y, of_row), temperature);
    const Tensor q = exp(context, log_q);
    const Tensor unlikely = compare(context, q, 0, Comparison::equal);
    const Tensor difference = masked_fill(context, subtract(context, log_q, log_p), unlikely, 0);
    Tensor divergence = sum(context, multiply(context, difference, q), 1);
    if (inputs.weights.defined()) divergence = multiply(context, divergence, inputs.weights);
    divergence =
        scale(context, select(context, divergence, counts), share * temperature * temperature);
    out.loss =
        share == 1 ? divergence : add(context, scale(context, out.loss, 1 - share), divergence);
  }
  if (options.loss.reduction == Reduction::none) return out;
  out.loss = scale(context, sum(context, out.loss), inputs.scale);
  const NoGrad no_grad(context);
  out.nll = scale(context, sum(context, out.nll), inputs.scale);
  return out;
}

}  // namespace trafo::ops
