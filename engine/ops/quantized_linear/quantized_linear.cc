#include "engine/ops/quantized_linear/quantized_linear.h"

#include <algorithm>

#include "engine/ops/checks.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/matmul/weight_gradient.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/row_op.h"
#include "engine/ops/view/view.h"

namespace trafo {
namespace {

constexpr const char* kQuantizedLinearOp = "quantized_linear";
constexpr int64_t kPanelMultiple = 64;  // rows or columns of a panel

// Rows or columns of a part: of `whole` ones, each of `elements`.
int64_t panel_size(const Context& context, int64_t whole, int64_t elements) {
  if (context.device().kind != DeviceKind::cpu) return whole;
  const int64_t fitting = ops::kPanelElements / std::max<int64_t>(1, elements);
  return std::clamp<int64_t>(fitting / kPanelMultiple * kPanelMultiple,
                             std::min(whole, kPanelMultiple), whole);
}

void check_quantized_linear(const Context& context, const Tensor& x, const CodedMatrix& weight,
                            const Tensor& bias) {
  check_compute_input(context, kQuantizedLinearOp, "x", x);
  check_input(context, kQuantizedLinearOp, "weight", weight.bytes);
  require(x.rank() >= 1 && x.dim(-1) == weight.columns, ErrorCode::shape_mismatch,
          kQuantizedLinearOp, "x ", x.shape(), " does not end in the ", weight.columns,
          " columns of weight [", weight.rows, ", ", weight.columns, "]");
  if (!bias.defined()) return;
  check_compute_input(context, kQuantizedLinearOp, "bias", bias);
  check_same_dtype(kQuantizedLinearOp, "x", x, "bias", bias);
  require(bias.shape() == Shape{weight.rows}, ErrorCode::shape_mismatch, kQuantizedLinearOp,
          "bias must be [", weight.rows, "], its shape is ", bias.shape());
}

std::byte* element(const Tensor& tensor, int64_t index) {
  return static_cast<std::byte*>(tensor.raw()) +
         index * static_cast<int64_t>(dtype_size(tensor.dtype()));
}

// y [T, out] = x W^T + bias, with panels of rows of W.
void multiply_panels(Context& context, const Tensor& x, const CodedMatrix& weight,
                     const Tensor& bias, int64_t tokens, const Tensor& y) {
  const int64_t out = weight.rows, in = weight.columns;
  const int64_t step = std::max<int64_t>(1, panel_size(context, out, in));
  const Tensor panel = context.empty({std::min(step, out), in}, x.dtype());
  for (int64_t row = 0; row < out; row += step) {
    const int64_t rows = std::min(step, out - row);
    ops::dequantize_into(context, weight, {row, 0, rows, in}, panel);
    GemmParams p;
    p.dtype = x.dtype();
    p.trans_b = true;
    p.m = tokens;
    p.n = rows;
    p.k = in;
    p.a = x.raw();
    p.lda = std::max<int64_t>(in, 1);
    p.b = panel.raw();
    p.ldb = std::max<int64_t>(in, 1);
    p.c = element(y, row);
    p.ldc = out;
    p.bias = bias.defined() ? element(bias, row) : nullptr;
    context.backend().gemm(p);
  }
}

// dx [T, in] (+)= dy W, with panels of columns of W: each sum is whole, as with one GEMM.
void input_gradient(Context& context, const Tensor& dy, const CodedMatrix& weight, int64_t tokens,
                    const GradTarget& dx) {
  const int64_t out = weight.rows, in = weight.columns;
  const int64_t step = std::max<int64_t>(1, panel_size(context, in, out));
  const Tensor panel = context.empty({out, std::min(step, in)}, dy.dtype());
  for (int64_t column = 0; column < in; column += step) {
    const int64_t columns = std::min(step, in - column);
    ops::dequantize_into(context, weight, {0, column, out, columns}, panel);
    GemmParams p;
    p.dtype = dy.dtype();
    p.accumulate = dx.accumulate;
    p.c_is_f32 = dy.dtype() == DType::bf16 && dx.buffer.dtype() == DType::f32;
    p.m = tokens;
    p.n = columns;
    p.k = out;
    p.a = dy.raw();
    p.lda = std::max<int64_t>(out, 1);
    p.b = panel.raw();
    p.ldb = columns;
    p.c = element(dx.buffer, column);
    p.ldc = in;
    context.backend().gemm(p);
  }
}

}  // namespace

CodedMatrix make_coded_matrix(Context& context, BasePrecision precision, int64_t rows,
                              int64_t columns) {
  const int64_t bytes = base_codes::places_of(precision, rows, columns).bytes;
  return {precision, rows, columns,
          context.zeros({bytes / static_cast<int64_t>(sizeof(int32_t))}, DType::i32)};
}

namespace ops {

void coded_product(Context& context, const Tensor& x, const CodedMatrix& weight, const Tensor& bias,
                   int64_t tokens, const Tensor& y, const CodedTerm& term) {
  if (!takes_coded_rows(context.device().kind, x.dtype(), tokens, weight.columns)) {
    require(term.d == nullptr, ErrorCode::internal, kQuantizedLinearOp,
            "a term goes with codes that are read");
    return multiply_panels(context, x, weight, bias, tokens, y);
  }
  launch(context, OpKernel::coded_rows, kQuantizedLinearOp,
         CodedRowsParams{weight.precision, x.dtype(), tokens, weight.rows, weight.columns, x.raw(),
                         weight.bytes.raw(), raw_or_null(bias), y.raw(), term});
}

void dequantize_into(Context& context, const CodedMatrix& matrix, const MatrixTile& part,
                     const Tensor& values) {
  launch(context, OpKernel::dequantize, "dequantize",
         DequantizeParams{matrix.precision, values.dtype(), matrix.rows, matrix.columns, part,
                          matrix.bytes.raw(), values.raw()});
}

Tensor dequantized(Context& context, const CodedMatrix& matrix, DType dtype) {
  const OpRange range(context, "dequantize", matrix.bytes);
  Tensor values = context.empty({matrix.rows, matrix.columns}, dtype);
  dequantize_into(context, matrix, {0, 0, matrix.rows, matrix.columns}, values);
  return values;
}

Tensor quantized_linear(Context& context, const Tensor& x, const CodedMatrix& weight,
                        const Tensor& bias) {
  const OpRange range(context, kQuantizedLinearOp, x, bias);
  check_quantized_linear(context, x, weight, bias);
  if (!context.fused_kernels())
    return linear(context, x, dequantized(context, weight, x.dtype()), bias);
  int64_t tokens = 1;
  for (int i = 0; i + 1 < x.rank(); ++i) tokens *= x.dim(i);
  const Tensor input = contiguous(context, x);
  const Tensor offset = bias.defined() ? contiguous(context, bias) : bias;
  Shape shape = x.shape();
  shape[shape.rank() - 1] = weight.rows;
  Tensor y = context.empty(shape, x.dtype());
  coded_product(context, input, weight, offset, tokens, y);
  if (!context.needs_grad({input, offset})) return y;

  // The second input takes the place of the weight: it has no gradient.
  context.record(kQuantizedLinearOp, {input, Tensor{}, offset}, {&y}, {{"weight", weight.bytes}},
                 [weight, tokens](Backward& b) {
                   const Tensor dy = b.grad_output();
                   weight_and_bias_gradient(b, 1, 2, dy, weight.rows, tokens, {},
                                            [](const GradTarget&) {});
                   if (!b.needs(0)) return;
                   input_gradient(b.context(), dy, weight, tokens, b.target(0, b.grad_dtype(0)));
                 });
  return y;
}

}  // namespace ops
}  // namespace trafo
