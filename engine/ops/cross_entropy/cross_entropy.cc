#include "engine/ops/cross_entropy/cross_entropy.h"

#include <cmath>

#include "engine/core/argument_error.h"
#include "engine/ops/binary/binary.h"
#include "engine/ops/cast/cast.h"
#include "engine/ops/checks.h"
#include "engine/ops/cross_entropy/loss_inputs.h"
#include "engine/ops/host_ints.h"
#include "engine/ops/masks/masks.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/ops/unary/unary.h"
#include "engine/ops/view/view.h"

namespace trafo {
namespace {

constexpr const char* kCrossEntropyOp = "cross_entropy";

template <class T>
std::vector<double> widened(const Context& context, const Tensor& tensor) {
  const std::vector<T> values = context.values<T>(tensor);
  return {values.begin(), values.end()};
}

std::vector<double> host_doubles(const Context& context, const Tensor& tensor) {
  return tensor.dtype() == DType::f64 ? widened<double>(context, tensor)
                                      : widened<float>(context, tensor);
}

void check_logits(const Context& context, const Tensor& logits) {
  check_compute_input(context, kCrossEntropyOp, "logits", logits);
  require(logits.rank() == 2, ErrorCode::shape_mismatch, kCrossEntropyOp,
          "the logits must be [tokens, classes], got ", logits.shape());
}

}  // namespace

Tensor scaled_sum(Context& context, const char* op, const Tensor& rows, double scale) {
  if (context.device().kind == DeviceKind::cpu) {
    double total = 0;
    for (const double value : host_doubles(context, rows)) total += value;
    return context.scalar(scale * total, {1}, rows.dtype());
  }
  const Tensor total = context.empty({1}, rows.dtype());
  ReduceForwardParams sum{};
  sum.dtype = rows.dtype();
  sum.kind = ReduceKind::sum;
  sum.outer = sum.inner = 1;
  sum.size = rows.numel();
  sum.x = rows.raw();
  sum.y = total.raw();
  launch(context, OpKernel::reduce_forward, op, sum);
  if (scale == 1) return total;
  const Tensor scaled = context.empty({1}, rows.dtype());
  launch(context, OpKernel::unary_forward, op,
         UnaryForwardParams{rows.dtype(), UnaryKind::scale, scale, 1, total.raw(), scaled.raw()});
  return scaled;
}

namespace {

// The sum of the weights of labels that count; throws unless every label and weight is in range.
double checked_weight_sum(const Context& context, const char* op, int64_t classes,
                          const LossInputs& inputs, int32_t ignore_label) {
  std::vector<double> weights;
  if (inputs.weights.defined()) weights = host_doubles(context, inputs.weights);
  double weight_sum = 0;
  const HostInts host(context, inputs.labels);
  for (size_t t = 0; t < host.size(); ++t) {
    if (host[t] == ignore_label) continue;
    require(host[t] >= 0 && host[t] < classes, ErrorCode::invalid_argument, op, "label ", host[t],
            " of row ", t, " is outside 0 to ", classes - 1, " and is not the ignored label ",
            ignore_label);
    const double weight = weights.empty() ? 1.0 : weights[t];
    require(weight >= 0, ErrorCode::invalid_argument, op, "weight ", weight, " of row ", t,
            " is negative or not a number");
    weight_sum += weight;
  }
  return weight_sum;
}

}  // namespace

LossInputs check_loss_inputs(Context& context, const char* op, int64_t rows, int64_t classes,
                             DType dtype, const Tensor& labels,
                             const ops::CrossEntropyOptions& options) {
  require_argument(options.label_smoothing >= 0 && options.label_smoothing < 1, op,
                   "label_smoothing", " must be at least 0 and below 1, got ",
                   options.label_smoothing);
  require(options.reduction == Reduction::none || options.reduction == Reduction::sum ||
              options.reduction == Reduction::mean,
          ErrorCode::invalid_argument, op, "unknown reduction ",
          static_cast<int32_t>(options.reduction));
  require_argument(
      std::isfinite(options.scale) && (options.scale == 1 || options.reduction != Reduction::none),
      op, "scale", " must be finite, and 1 without a reduction, got ", options.scale);
  check_input(context, op, "labels", labels);
  require(labels.dtype() == DType::i32, ErrorCode::dtype_mismatch, op, "the labels must be int32, ",
          "got ", dtype_name(labels.dtype()));
  require(labels.rank() == 1 && labels.dim(0) == rows, ErrorCode::shape_mismatch, op,
          "the labels must be [", rows, "], one for each row, got ", labels.shape());
  LossInputs inputs{ops::contiguous(context, labels), {}, options.scale};
  if (options.weights.defined()) {
    const Tensor& given = options.weights;
    check_input(context, op, "weights", given);
    require(given.dtype() == stat_dtype(dtype), ErrorCode::dtype_mismatch, op, "the weights are ",
            dtype_name(given.dtype()), ", they must be ", dtype_name(stat_dtype(dtype)),
            dtype == DType::bf16 ? " with bfloat16 logits" : " as the logits");
    require(given.shape() == labels.shape(), ErrorCode::shape_mismatch, op, "the weights must be [",
            rows, "], got ", given.shape());
    inputs.weights = ops::contiguous(context, given.detach());
  }
  const bool mean = options.reduction == Reduction::mean;
  double weight_sum = options.weight_sum;
  if (context.device().kind == DeviceKind::cpu || !options.labels_validated ||
      (mean && weight_sum < 0))
    weight_sum = checked_weight_sum(context, op, classes, inputs, options.ignore_label);
  if (mean) inputs.scale = weight_sum > 0 ? options.scale / weight_sum : 0;
  return inputs;
}

namespace ops {

CrossEntropyOutput cross_entropy(Context& context, const Tensor& logits, const Tensor& labels,
                                 const CrossEntropyOptions& options) {
  const OpRange range(context, kCrossEntropyOp, logits, labels);
  check_logits(context, logits);
  if (options.class_weights.defined())
    return class_weighted_cross_entropy(context, logits, labels, options);
  if (!context.fused_kernels()) return cross_entropy_reference(context, logits, labels, options);
  const int64_t rows = logits.dim(0), classes = logits.dim(1);
  const DType dtype = logits.dtype();
  const LossInputs inputs =
      check_loss_inputs(context, kCrossEntropyOp, rows, classes, dtype, labels, options);
  const Tensor x = contiguous(context, logits);
  const DType sums = stat_dtype(dtype);
  const Tensor loss = context.empty({rows}, sums), nll = context.empty({rows}, sums);
  const Tensor lse = context.empty({rows}, sums);
  const Tensor lse_rest = context.empty({rows}, sums);
  CrossEntropyForwardParams params{};
  params.dtype = dtype;
  params.label_smoothing = options.label_smoothing;
  params.ignore_label = options.ignore_label;
  params.rows = rows;
  params.classes = params.stride = classes;
  params.logits = x.raw();
  params.labels = static_cast<const int32_t*>(inputs.labels.raw());
  params.weights = inputs.weights.defined() ? inputs.weights.raw() : nullptr;
  params.loss = loss.raw();
  params.nll = nll.raw();
  params.lse = lse.raw();
  params.lse_rest = lse_rest.raw();
  launch(context, OpKernel::cross_entropy_forward, kCrossEntropyOp, params);

  CrossEntropyOutput out{loss, nll};
  const bool per_row = options.reduction == Reduction::none;
  if (!per_row) {
    out.loss = scaled_sum(context, kCrossEntropyOp, loss, inputs.scale);
    out.nll = scaled_sum(context, kCrossEntropyOp, nll, inputs.scale);
  }
  if (!context.needs_grad({x})) return out;
  context.record(kCrossEntropyOp, {x}, {&out.loss},
                 {{"logits", x}, {"labels", inputs.labels}, {"weights", inputs.weights}},
                 [x = x.detach(), lse, lse_rest, inputs, per_row,
                  smoothing = options.label_smoothing, ignore = options.ignore_label](Backward& b) {
                   const Tensor dloss = b.grad_output();
                   const GradTarget target = b.target(0);
                   CrossEntropyBackwardParams p{};
                   p.dtype = x.dtype();
                   p.label_smoothing = smoothing;
                   p.ignore_label = ignore;
                   p.rows = x.dim(0);
                   p.classes = x.dim(1);
                   p.accumulate = target.accumulate;
                   p.logits = x.raw();
                   p.labels = static_cast<const int32_t*>(inputs.labels.raw());
                   p.weights = inputs.weights.defined() ? inputs.weights.raw() : nullptr;
                   p.lse = lse.raw();
                   p.lse_rest = lse_rest.raw();
                   p.dloss = dloss.raw();
                   p.per_row = per_row;
                   p.scale = inputs.scale;
                   p.dlogits = target.buffer.raw();
                   launch(b.context(), OpKernel::cross_entropy_backward, kCrossEntropyOp, p);
                 });
  return out;
}

CrossEntropyOutput cross_entropy_reference(Context& context, const Tensor& given,
                                           const Tensor& labels,
                                           const CrossEntropyOptions& options) {
  check_logits(context, given);
  const Tensor logits = given.dtype() == DType::bf16 ? cast(context, given, DType::f32) : given;
  const int64_t rows = logits.dim(0), classes = logits.dim(1);
  const DType dtype = logits.dtype();
  const LossInputs inputs =
      check_loss_inputs(context, kCrossEntropyOp, rows, classes, dtype, labels, options);
  const double smoothing = options.label_smoothing;

  CrossEntropyOutput out;
  if (rows == 0 || classes == 0) {  // no maximum over nothing; every row, if any, is ignored
    out.loss = sum(context, logits, 1);
    out.nll = out.loss.detach();
  } else {
    // A row's loss is w (lse - <q, x>) with the target distribution q = (1 - e) onehot + e / V.
    const Tensor hit = one_hot(context, inputs.labels, classes, options.ignore_label, dtype);
    const Tensor counts = sum(context, hit, 1);  // 1, or 0 of ignored rows
    // Selected, because products with zeros would let NaN and infinities of ignored rows and of
    // other classes through.
    const Tensor of_row = reshape(context, counts, {rows, 1});
    const Tensor x = select(context, logits, of_row);
    const Tensor maximum = max(context, x.detach(), 1, true);
    const Tensor shifted = subtract(context, x, maximum);
    const Tensor lse = log(context, sum(context, exp(context, shifted), 1));
    const Tensor of_label = sum(context, select(context, shifted, hit), 1);
    const auto counted = [&](const Tensor& loss) {
      const Tensor weighted =
          inputs.weights.defined() ? multiply(context, loss, inputs.weights) : loss;
      return select(context, weighted, counts);
    };
    Tensor expected = scale(context, of_label, 1 - smoothing);
    if (smoothing > 0)
      expected =
          add(context, expected,
              scale(context, sum(context, shifted, 1), smoothing / static_cast<double>(classes)));
    out.loss = counted(subtract(context, lse, expected));
    NoGrad no_grad(context);
    out.nll = counted(subtract(context, lse, of_label));
  }
  if (options.reduction == Reduction::none) return out;
  out.loss = scale(context, sum(context, out.loss), inputs.scale);
  NoGrad no_grad(context);
  out.nll = scale(context, sum(context, out.nll), inputs.scale);
  return out;
}

}  // namespace ops
}  // namespace trafo
