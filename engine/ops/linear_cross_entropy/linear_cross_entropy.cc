#include "engine/ops/linear_cross_entropy/linear_cross_entropy.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>

#include "engine/core/argument_error.h"
#include "engine/ops/checks.h"
#include "engine/ops/cross_entropy/loss_inputs.h"
#include "engine/ops/fp8/fp8.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/matmul/weight_gradient.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/ops/unary/unary.h"
#include "engine/ops/view/view.h"
#include "engine/runtime/side_work.h"

namespace trafo::ops {
namespace {

constexpr const char* kLinearCrossEntropyOp = "linear_cross_entropy";

// Chunks are whole multiples of this where the budget allows: full tiles for the GEMMs.
constexpr int64_t kRowStep = 16;

// Bytes of logits that are held at a time, if the caller gives no budget. On the CPU it is what the
// caches hold. On a device every chunk adds to the whole of dW once more, so chunks should be
// large:
// - twice the size of dW, between 80 and 208 MiB, whatever the batch;
// - more for large batches: the rows that fill the multiprocessors with tiles of 128 x 256 of dX,
//   but no more bytes than 32 for each element of x, about what a layer's activations take.
int64_t chunk_bytes(const Context& context, const Tensor& x, const Tensor& weight,
                    const LinearCrossEntropyOptions& options) {
  if (options.chunk_bytes) return *options.chunk_bytes;
  constexpr int64_t kMiB = 1 << 20, kTileRows = 128, kTileColumns = 256, kMultiprocessors = 132;
  if (context.device().kind == DeviceKind::cpu) return 8 * kMiB;
  const int64_t by_weight =
      std::clamp(weight.numel() * int64_t{2 * sizeof(float)}, 80 * kMiB, 208 * kMiB);
  const int64_t tiles = std::max<int64_t>(1, (x.dim(1) + kTileColumns - 1) / kTileColumns);
  const int64_t wave = kTileRows * std::max<int64_t>(1, kMultiprocessors / tiles);
  const int64_t by_wave = checked_mul(wave * static_cast<int64_t>(dtype_size(x.dtype())),
                                      weight.dim(0), kLinearCrossEntropyOp);
  return std::max(by_weight,
                  std::min(by_wave, checked_mul(x.numel(), int64_t{32}, kLinearCrossEntropyOp)));
}

void check_soft_cap(double cap) {
  require_argument(std::isfinite(cap) && cap >= 0, kLinearCrossEntropyOp, "soft_cap",
                   " must be 0, for none, or a finite number above it, got ", cap);
}

void check_teacher(const Context& context, const Tensor& x, const Tensor& weight,
                   const DistillationTeacher& teacher, const CrossEntropyOptions& loss) {
  check_mixture(kLinearCrossEntropyOp, teacher.share, teacher.temperature);
  require(teacher.share > 0, ErrorCode::invalid_argument, kLinearCrossEntropyOp,
          "a teacher without a share in the loss");
  require(!loss.class_weights.defined(), ErrorCode::unsupported, kLinearCrossEntropyOp,
          "class weights do not go with a teacher");
  check_soft_cap(teacher.soft_cap);
  check_compute_input(context, kLinearCrossEntropyOp, "the teacher's x", teacher.x);
  check_compute_input(context, kLinearCrossEntropyOp, "the teacher's weight", teacher.weight);
  check_same_dtype(kLinearCrossEntropyOp, "x", x, "the teacher's x", teacher.x);
  check_same_dtype(kLinearCrossEntropyOp, "x", x, "the teacher's weight", teacher.weight);
  require(teacher.x.rank() == 2 && teacher.weight.rank() == 2 &&
              teacher.x.dim(1) == teacher.weight.dim(1) && teacher.x.dim(0) == x.dim(0),
          ErrorCode::shape_mismatch, kLinearCrossEntropyOp, "the teacher's x must be [", x.dim(0),
          ", width] and its weight [classes, width], got ", teacher.x.shape(), " and ",
          teacher.weight.shape());
  require(teacher.weight.dim(0) == weight.dim(0), ErrorCode::shape_mismatch, kLinearCrossEntropyOp,
          "the teacher has ", teacher.weight.dim(0), " classes, the student ", weight.dim(0));
  if (!teacher.bias.defined()) return;
  check_compute_input(context, kLinearCrossEntropyOp, "the teacher's bias", teacher.bias);
  check_same_dtype(kLinearCrossEntropyOp, "x", x, "the teacher's bias", teacher.bias);
  require(teacher.bias.rank() == 1 && teacher.bias.dim(0) == weight.dim(0),
          ErrorCode::shape_mismatch, kLinearCrossEntropyOp, "the teacher's bias must be [",
          weight.dim(0), "], got ", teacher.bias.shape());
}

void check_inputs(const Context& context, const Tensor& x, const Tensor& weight, const Tensor& bias,
                  const LinearCrossEntropyOptions& options) {
  check_compute_input(context, kLinearCrossEntropyOp, "x", x);
  check_compute_input(context, kLinearCrossEntropyOp, "weight", weight);
  check_same_dtype(kLinearCrossEntropyOp, "x", x, "weight", weight);
  require(x.rank() == 2 && weight.rank() == 2 && x.dim(1) == weight.dim(1),
          ErrorCode::shape_mismatch, kLinearCrossEntropyOp,
          "x must be [tokens, width] and weight [classes, width], ", "got ", x.shape(), " and ",
          weight.shape());
  if (bias.defined()) {
    check_compute_input(context, kLinearCrossEntropyOp, "bias", bias);
    check_same_dtype(kLinearCrossEntropyOp, "x", x, "bias", bias);
    require(bias.rank() == 1 && bias.dim(0) == weight.dim(0), ErrorCode::shape_mismatch,
            kLinearCrossEntropyOp, "bias must be [", weight.dim(0), "], got ", bias.shape());
  }
  require(options.loss.reduction != Reduction::none, ErrorCode::invalid_argument,
          kLinearCrossEntropyOp,
          "needs reduction sum or mean; for the loss of each token use linear and cross_entropy");
  require(!options.loss.class_weights.defined() || options.loss.label_smoothing == 0,
          ErrorCode::unsupported, kLinearCrossEntropyOp,
          "class weights with label smoothing need all logits at once: use linear and "
          "cross_entropy");
  check_soft_cap(options.soft_cap);
  if (options.teacher) check_teacher(context, x, weight, *options.teacher, options.loss);
  require_argument(options.chunk_bytes.value_or(1) >= 1, kLinearCrossEntropyOp, "chunk_bytes",
                   " must be at least 1, got ", options.chunk_bytes.value_or(1));
  if (!options.fp8_weight) return;
  require(context.fused_kernels(), ErrorCode::unsupported, kLinearCrossEntropyOp,
          "the reference path has no FP8");
  require_fp8_dtype(context, kLinearCrossEntropyOp, x);
  require_fp8_multiple(kLinearCrossEntropyOp, "the width", weight.dim(1));
  require_fp8_weight(kLinearCrossEntropyOp, weight, *options.fp8_weight);
}

// Rows whose logits fit the budget; `classes`: of all models together.
int64_t most_rows(int64_t classes, DType dtype, int64_t bytes) {
  const int64_t row_bytes = std::max<int64_t>(
      1, checked_mul(classes, static_cast<int64_t>(dtype_size(dtype)), kLinearCrossEntropyOp));
  return std::max<int64_t>(1, bytes / row_bytes);
}

int64_t rows_of_chunk(int64_t rows, int64_t most) {
  if (rows <= most) return std::max<int64_t>(1, rows);
  // Chunks of about one size: a small last one would be a slow GEMM.
  const int64_t chunks = (rows - 1) / most + 1;
  int64_t chunk = (rows - 1) / chunks + 1;
  if (most > kRowStep)
    chunk = std::min((chunk + kRowStep - 1) / kRowStep * kRowStep, most - most % kRowStep);
  return chunk;
}

template <class T>
T* at_row(T* data, int64_t row, int64_t width, DType dtype) {
  using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
  return static_cast<Byte*>(data) + row * width * static_cast<int64_t>(dtype_size(dtype));
}

DistillationTeacher dense(Context& context, const DistillationTeacher& given) {
  DistillationTeacher teacher = given;
  teacher.x = contiguous(context, given.x.detach());
  teacher.weight = contiguous(context, given.weight.detach());
  if (given.bias.defined()) teacher.bias = contiguous(context, given.bias.detach());
  return teacher;
}

// logits [rows, V], rows `stride` apart, = x[begin ..] weight^T + bias.
void project_rows(const Context& context, const Tensor& x, const Tensor& weight, const Tensor& bias,
                  int64_t begin, int64_t rows, const Tensor& logits, int64_t stride) {
  const DType dtype = x.dtype();
  GemmParams p;
  p.dtype = dtype;
  p.trans_b = true;
  p.m = rows;
  p.n = weight.dim(0);
  p.k = x.dim(1);
  p.a = at_row<const void>(x.raw(), begin, x.dim(1), dtype);
  p.lda = p.ldb = std::max<int64_t>(1, x.dim(1));
  p.b = weight.raw();
  p.c = logits.raw();
  p.ldc = std::max<int64_t>(1, stride);
  p.bias = bias.defined() ? bias.raw() : nullptr;
  context.backend().gemm(p);
}

// Most elements of the gradient of the logits are tiny beside the label's. E5M2 has the exponents
// for them: it goes from 1 down to 2^-31, E4M3 to 2^-17.
constexpr Fp8Format kDlogitsFormat = Fp8Format::e5m2;

// Additional buffers of FP8. Operands have the padding of V; logits and their gradient have it,
// too.
struct Fp8Work {
  const Fp8Matrix& weight;  // [V, C]
  Fp8Matrix x;              // [T, C]
  Tensor bias;              // [padded V] or undefined
  Tensor dbias;             // [padded V] where the bias gradient is wanted and V has padding
  Tensor dlogits;  // bytes [chunk, padded V]; undefined: dx is not a product of FP8 operands
  Tensor dlogits_scale;

  int64_t padded_classes() const { return padded_fp8(weight.rows); }
  const float* scale_of_dlogits() const { return static_cast<const float*>(dlogits_scale.raw()); }
  Fp8Operand dlogits_operand(int64_t rows) const {
    return {kDlogitsFormat, dlogits.raw(), scale_of_dlogits(), rows, padded_classes()};
  }
};

// One call: the tensors that live through the loop over chunks.
struct Work {
  Context& context;
  const Tensor& x;       // [T, C]
  const Tensor& weight;  // [V, C]
  const Tensor& bias;    // [V] or undefined
  const LossInputs& inputs;
  const CrossEntropyOptions& options;
  std::optional<DistillationTeacher> teacher;
  int64_t stride;             // from a row of logits to the next: V, in FP8 with its padding
  double soft_cap;            // 0: none
  Tensor logits;              // [chunk, stride], then their gradient
  Tensor capped;              // [chunk, stride] with a soft cap
  Tensor teacher_logits;      // [chunk, stride] with a teacher
  Tensor loss, nll, lse;      // [T], stat_dtype as everything below but dx
  Tensor dx;                  // undefined where not wanted
  GradTarget dweight, dbias;  // the same
  std::optional<Fp8Work> fp8;

  bool wants_gradient() const {
    return dx.defined() || dweight.buffer.defined() || dbias.buffer.defined();
  }

  void chunk_logits(int64_t begin, int64_t rows) const {
    if (fp8)
      fp8_logits(begin, rows);
    else
      project_rows(context, x, weight, bias, begin, rows, logits, stride);
    if (capped.defined()) cap_rows(soft_cap, rows, logits, capped);
    if (!teacher) return;
    project_rows(context, teacher->x, teacher->weight, teacher->bias, begin, rows, teacher_logits,
                 stride);
    if (teacher->soft_cap > 0) cap_rows(teacher->soft_cap, rows, teacher_logits, teacher_logits);
  }

  void cap_rows(double cap, int64_t rows, const Tensor& from, const Tensor& to) const {
    launch(context, OpKernel::unary_forward, kLinearCrossEntropyOp,
           UnaryForwardParams{x.dtype(), UnaryKind::soft_cap, cap, rows * stride, from.raw(),
                              to.raw()});
  }

  // The gradient of the logits from the gradient of the capped ones.
  void uncap_gradient(int64_t rows) const {
    launch(context, OpKernel::unary_backward, kLinearCrossEntropyOp,
           UnaryBackwardParams{x.dtype(), UnaryKind::soft_cap, soft_cap, false, rows * stride,
                               nullptr, capped.raw(), logits.raw(), logits.raw()});
  }

  // Losses of the chunk; its logits become their gradient when one is wanted.
  void chunk_loss(int64_t begin, int64_t rows) const {
    if (teacher) {
      auto p = loss_params<DistillationForwardParams>(begin, rows);
      p.share = teacher->share;
      p.temperature = teacher->temperature;
      p.teacher = teacher_logits.raw();
      launch(context, OpKernel::distillation_forward, kLinearCrossEntropyOp, p);
    } else {
      auto p = loss_params<CrossEntropyForwardParams>(begin, rows);
      p.lse = at_row(lse.raw(), begin, 1, stat_dtype(x.dtype()));
      if (fp8 && fp8->dlogits.defined()) {
        p.dlogits_fp8 = fp8->dlogits.raw();
        p.dlogits_scale = fp8->scale_of_dlogits();
      }
      launch(context, OpKernel::cross_entropy_forward, kLinearCrossEntropyOp, p);
    }
    if (capped.defined() && wants_gradient()) uncap_gradient(rows);
  }

  // Members that both losses have.
  template <class Params>
  Params loss_params(int64_t begin, int64_t rows) const {
    const DType dtype = x.dtype(), sums = stat_dtype(dtype);
    Params p{};
    p.dtype = dtype;
    p.label_smoothing = options.label_smoothing;
    p.ignore_label = options.ignore_label;
    p.rows = rows;
    p.classes = weight.dim(0);
    p.stride = stride;
    p.logits = capped.defined() ? capped.raw() : logits.raw();
    p.labels = static_cast<const int32_t*>(inputs.labels.raw()) + begin;
    p.weights = inputs.weights.defined() ? at_row<const void>(inputs.weights.raw(), begin, 1, sums)
                                         : nullptr;
    p.loss = at_row(loss.raw(), begin, 1, sums);
    p.nll = at_row(nll.raw(), begin, 1, sums);
    p.dloss = inputs.scale;
    p.dlogits = wants_gradient() ? logits.raw() : nullptr;
    return p;
  }

  // Those of weight and bias run beside the product for dx. The next chunk overwrites the logits.
  void chunk_gradients(int64_t begin, int64_t rows) const {
    SideWork* side = dx.defined() ? context.step().side_work : nullptr;
    int64_t number = -1;
    if (side)
      number = side->run({}, {}, [&] { chunk_parameter_gradients(begin, rows, true); });
    else
      chunk_parameter_gradients(begin, rows, false);
    if (!dx.defined()) return;
    if (fp8 && fp8->dlogits.defined())
      fp8_dx(begin, rows);
    else
      chunk_dx(begin, rows);
    if (side) side->wait(number);
  }

  void chunk_dx(int64_t begin, int64_t rows) const {
    GemmParams p = gradient_product();
    p.m = rows;
    p.k = weight.dim(0);
    p.b = weight.raw();
    p.c = at_row(dx.raw(), begin, x.dim(1), x.dtype());
    context.backend().gemm(p);
  }

  void fp8_logits(int64_t begin, int64_t rows) const {
    fp8_product(context, kLinearCrossEntropyOp, fp8->x.as_stored().from(begin),
                fp8->weight.as_stored(), rows, x.dtype(), logits.raw(), fp8->bias);
  }

  void fp8_dx(int64_t begin, int64_t rows) const {
    fp8_product(context, kLinearCrossEntropyOp, fp8->dlogits_operand(rows),
                fp8->weight.as_transposed(), rows, x.dtype(),
                at_row(dx.raw(), begin, x.dim(1), x.dtype()));
  }

  // A product of the gradient of the logits; m, k, B and C are missing.
  GemmParams gradient_product() const {
    GemmParams p;
    p.dtype = x.dtype();
    p.a = logits.raw();
    p.lda = std::max<int64_t>(1, stride);
    p.n = x.dim(1);
    p.ldb = p.ldc = std::max<int64_t>(1, x.dim(1));
    return p;
  }

  // beside: while dx is computed.
  void chunk_parameter_gradients(int64_t begin, int64_t rows, bool beside) const {
    const DType dtype = x.dtype();
    const int64_t classes = weight.dim(0);
    if (dweight.buffer.defined()) {
      GemmParams p = gradient_product();
      p.trans_a = true;
      p.c_is_f32 = dtype == DType::bf16;
      p.accumulate = dweight.accumulate || begin > 0;
      p.m = classes;
      p.k = rows;
      p.b = at_row<const void>(x.raw(), begin, x.dim(1), dtype);
      p.c = dweight.buffer.raw();
      const GradTarget sums{dbias.buffer, dbias.accumulate || begin > 0};
      if (sum_bias_in_gemm(context, p, sums, !beside))
        return context.backend().grouped_gemm({&p, 1});
      context.backend().gemm(p);
    }
    if (!dbias.buffer.defined()) return;
    const bool padded = fp8 && fp8->dbias.defined();
    const Tensor& sums = padded ? fp8->dbias : dbias.buffer;
    launch(context, OpKernel::column_sum, kLinearCrossEntropyOp,
           ColumnSumParams{dtype, begin > 0 || (dbias.accumulate && !padded), rows, stride,
                           logits.raw(), sums.raw()});
    // The sums of the padding are not copied.
    if (padded && begin + rows == x.dim(0))
      launch(context, OpKernel::column_sum, kLinearCrossEntropyOp,
             ColumnSumParams{sums.dtype(), dbias.accumulate, 1, classes, sums.raw(),
                             dbias.buffer.raw()});
  }
};

// The first chunk overwrites it; without rows there is no chunk, and it is zero.
Tensor gradient_like(Context& context, const Tensor& tensor, int64_t rows, DType dtype) {
  if (!tensor.defined() || !context.needs_grad({tensor})) return {};
  return rows > 0 ? context.empty(tensor.shape(), dtype) : context.zeros(tensor.shape(), dtype);
}

// The gradient of a logit lies between -g and g, where g is the factor of its token in the loss.
Fp8Work fp8_work(const Work& work, const Fp8Matrix& weight, int64_t chunk) {
  Context& context = work.context;
  Fp8Work fp8{
      weight,    to_fp8(context, kLinearCrossEntropyOp, work.x, Fp8Format::e4m3, Fp8Copies::stored),
      work.bias, {},
      {},        {}};
  const int64_t padded = fp8.padded_classes();
  if (work.bias.defined() && padded != weight.rows) {
    fp8.bias = context.zeros({padded}, work.bias.dtype());
    context.backend().copy(fp8.bias.raw(), work.bias.raw(), work.bias.bytes());
  }
  if (work.dbias.buffer.defined() && padded != weight.rows)
    fp8.dbias = context.empty({padded}, work.dbias.buffer.dtype());
  if (!work.dx.defined() || work.teacher || work.capped.defined()) return fp8;
  fp8.dlogits = fp8_bytes(context, checked_mul(chunk, padded, kLinearCrossEntropyOp));
  fp8.dlogits_scale = context.empty({2}, DType::f32);
  const Tensor& weights = work.inputs.weights;
  Fp8ScaleParams p{};
  p.dtype = DType::f32;
  p.format = kDlogitsFormat;
  p.count = weights.defined() ? weights.numel() : 0;
  p.v = weights.defined() ? weights.raw() : nullptr;
  p.factor = work.inputs.scale;
  p.scale = static_cast<float*>(fp8.dlogits_scale.raw());
  launch(context, OpKernel::fp8_scale, kLinearCrossEntropyOp, p);
  return fp8;
}

Tensor capped_linear(Context& context, const Tensor& x, const Tensor& weight, const Tensor& bias,
                     double cap) {
  const Tensor logits = linear(context, x, weight, bias);
  return cap > 0 ? soft_cap(context, logits, cap) : logits;
}

// Where the gradient of weight or bias goes.
GradTarget parameter_gradient(Context& context, const Tensor& tensor, int64_t rows, DType dtype,
                              bool at_once) {
  if (at_once && rows > 0 && tensor.defined() && context.recording()) {
    const GradTarget bound = claim_grad(tensor, dtype);
    if (bound.buffer.defined()) return bound;
  }
  return {gradient_like(context, tensor, rows, dtype), false};
}

}  // namespace

CrossEntropyOutput linear_cross_entropy(Context& context, const Tensor& x, const Tensor& weight,
                                        const Tensor& bias, const Tensor& labels,
                                        const LinearCrossEntropyOptions& options) {
  const OpRange range(context, kLinearCrossEntropyOp, x, weight, bias, labels);
  check_inputs(context, x, weight, bias, options);
  if (!context.fused_kernels())
    return linear_cross_entropy_reference(context, x, weight, bias, labels, options);
  if (options.loss.class_weights.defined()) {
    LinearCrossEntropyOptions plain = options;
    plain.loss = with_row_weights(context, kLinearCrossEntropyOp, weight.dim(0), x.dtype(), labels,
                                  options.loss);
    return linear_cross_entropy(context, x, weight, bias, labels, plain);
  }
  const int64_t rows = x.dim(0), classes = weight.dim(0);
  const DType dtype = x.dtype();
  const LossInputs inputs =
      check_loss_inputs(context, kLinearCrossEntropyOp, rows, classes, dtype, labels, options.loss);
  const Tensor x_dense = contiguous(context, x), weight_dense = contiguous(context, weight);
  const Tensor bias_dense = bias.defined() ? contiguous(context, bias) : Tensor{};

  std::optional<DistillationTeacher> teacher;
  if (options.teacher) teacher = dense(context, *options.teacher);
  const int64_t stride = options.fp8_weight ? padded_fp8(classes) : classes;
  const int64_t all_classes = (1 + (teacher ? 1 : 0) + (options.soft_cap > 0 ? 1 : 0)) * stride;
  const int64_t most = most_rows(all_classes, dtype, chunk_bytes(context, x, weight, options));
  const int64_t chunk = rows_of_chunk(rows, most);
  // The memory planned for a batch serves smaller ones, whose chunks may be larger: what is held
  // never grows as rows become fewer.
  Work work{context,
            x_dense,
            weight_dense,
            bias_dense,
            inputs,
            options.loss,
            std::move(teacher),
            stride,
            options.soft_cap,
            {},
            {},
            {},
            {},
            {},
            {},
            {},
            {},
            {},
            {}};
  work.logits = context.empty({std::min(most, rows), stride}, dtype);
  if (options.soft_cap > 0) work.capped = context.empty(work.logits.shape(), dtype);
  if (work.teacher) work.teacher_logits = context.empty(work.logits.shape(), dtype);
  const DType sums = stat_dtype(dtype);
  work.loss = context.empty({rows}, sums);
  work.nll = context.empty({rows}, sums);
  if (!work.teacher) work.lse = context.empty({rows}, sums);
  work.dx = gradient_like(context, x_dense, rows, dtype);
  const bool at_once = options.gradients_at_once;
  work.dweight = parameter_gradient(context, weight_dense, rows, sums, at_once);
  work.dbias = parameter_gradient(context, bias_dense, rows, sums, at_once);
  const bool wanted = work.wants_gradient();
  if (options.fp8_weight && rows > 0)
    work.fp8.emplace(fp8_work(work, *options.fp8_weight, std::min(most, rows)));
  for (int64_t begin = 0; begin < rows; begin += chunk) {
    const int64_t count = std::min(chunk, rows - begin);
    work.chunk_logits(begin, count);
    work.chunk_loss(begin, count);
    if (wanted) work.chunk_gradients(begin, count);
  }

  CrossEntropyOutput out;
  out.loss = scaled_sum(context, kLinearCrossEntropyOp, work.loss, inputs.scale);
  out.nll = scaled_sum(context, kLinearCrossEntropyOp, work.nll, inputs.scale);
  if (!wanted) return out;
  // The gradients leave with the node: handed over as they are for an upstream gradient of one.
  // Gradients that have arrived already are not among them.
  const auto still_to_go = [](const Tensor& parameter, const GradTarget& gradient) {
    const bool arrived = requires_grad(parameter) && gradient.buffer.defined() &&
                         same_tensor(gradient.buffer, parameter.variable()->grad);
    return arrived ? Tensor{} : gradient.buffer;
  };
  std::array<Tensor, 3> gradients{work.dx, still_to_go(weight_dense, work.dweight),
                                  still_to_go(bias_dense, work.dbias)};
  context.record(
      kLinearCrossEntropyOp, {x_dense, weight_dense, bias_dense}, {&out.loss}, {},
      [gradients = std::move(gradients), at_once](Backward& b) mutable {
        const double upstream = b.unit_grad_output() ? 1 : b.context().item(b.grad_output());
        require(!at_once || upstream == 1, ErrorCode::internal, kLinearCrossEntropyOp,
                "gradients were wanted at once, for an upstream gradient of one; it is ", upstream);
        for (size_t input = 0; input < gradients.size(); ++input) {
          Tensor gradient = std::move(gradients[input]);
          if (!gradient.defined()) continue;
          if (upstream != 1) gradient = scale(b.context(), gradient, upstream);
          b.add(input, gradient);  // the only handle: taken over, not copied
        }
      });
  return out;
}

CrossEntropyOutput linear_cross_entropy_reference(Context& context, const Tensor& x,
                                                  const Tensor& weight, const Tensor& bias,
                                                  const Tensor& labels,
                                                  const LinearCrossEntropyOptions& options) {
  check_inputs(context, x, weight, bias, options);
  const Tensor logits = capped_linear(context, x, weight, bias, options.soft_cap);
  if (options.teacher) {
    const DistillationTeacher& teacher = *options.teacher;
    const auto teacher_logits = [&] {
      const NoGrad no_grad(context);
      return capped_linear(context, teacher.x, teacher.weight, teacher.bias, teacher.soft_cap);
    }();
    return distillation_reference(context, logits, teacher_logits, labels,
                                  {options.loss, teacher.share, teacher.temperature});
  }
  const CrossEntropyOptions plain = with_row_weights(context, kLinearCrossEntropyOp, weight.dim(0),
                                                     x.dtype(), labels, options.loss);
  return cross_entropy_reference(context, logits, labels, plain);
}

}  // namespace trafo::ops
