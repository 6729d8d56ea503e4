#include "engine/ops/matmul/matmul.h"

#include <algorithm>

#include "engine/ops/binary/binary.h"
#include "engine/ops/binary/broadcast.h"
#include "engine/ops/checks.h"
#include "engine/ops/matmul/weight_gradient.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/view/view.h"

namespace trafo {
namespace {

// How the product reads one matrix, or a batch of them, in memory.
struct Matrix {
  const void* data = nullptr;
  bool transposed = false;  // stored with rows and columns swapped
  int64_t ld = 0;
  int64_t batch_stride = 0;

  Matrix flipped() const { return {data, !transposed, ld, batch_stride}; }
};

// `x` [.., rows, cols] as an operand of a GEMM, if its strides allow it.
bool readable(const Tensor& x, Matrix& matrix) {
  const int rank = x.rank();
  const int64_t rows = x.dim(-2), cols = x.dim(-1);
  const int64_t row_step = x.strides()[rank - 2], col_step = x.strides()[rank - 1];
  const auto fits = [](int64_t size, int64_t step, int64_t count, int64_t ld) {
    return (size <= 1 || step == 1) && (count <= 1 || ld >= size);
  };
  matrix.data = x.raw();
  matrix.batch_stride = rank == 3 ? x.strides()[0] : 0;
  if (fits(cols, col_step, rows, row_step)) {
    matrix.transposed = false;
    matrix.ld = rows <= 1 ? std::max<int64_t>(cols, 1) : row_step;
    return true;
  }
  if (fits(rows, row_step, cols, col_step)) {
    matrix.transposed = true;
    matrix.ld = cols <= 1 ? std::max<int64_t>(rows, 1) : col_step;
    return true;
  }
  return false;
}

// The operand of a product: `x` itself or, where its strides are of no use, a copy.
Tensor operand(Context& context, const Tensor& x) {
  Matrix matrix;
  return readable(x, matrix) ? x : ops::contiguous(context, x);
}

Matrix matrix_of(const Tensor& x, bool transpose) {
  Matrix matrix;
  readable(x, matrix);
  return transpose ? matrix.flipped() : matrix;
}

// c [m, n] (+)= a [m, k] b [k, n], c contiguous; of bf16 factors also in float32.
void product(Context& context, DType dtype, int64_t batch, int64_t m, int64_t n, int64_t k,
             const Matrix& a, const Matrix& b, const Tensor& c, bool accumulate,
             const void* bias = nullptr) {
  GemmParams params;
  params.dtype = dtype;
  params.trans_a = a.transposed;
  params.trans_b = b.transposed;
  params.accumulate = accumulate;
  params.c_is_f32 = dtype == DType::bf16 && c.dtype() == DType::f32;
  params.m = m;
  params.n = n;
  params.k = k;
  params.a = a.data;
  params.lda = a.ld;
  params.b = b.data;
  params.ldb = b.ld;
  params.c = c.raw();
  params.ldc = n;
  params.bias = bias;
  params.batch = batch;
  params.stride_a = a.batch_stride;
  params.stride_b = b.batch_stride;
  params.stride_c = m * n;
  context.backend().gemm(params);
}

Shape linear_shape(const Tensor& x, int64_t out) {
  Shape shape = x.shape();
  shape[shape.rank() - 1] = out;
  return shape;
}

// The leading dimensions of [.., rows, columns].
Shape batch_shape(const Tensor& x) {
  return Shape(x.shape().span().first(static_cast<size_t>(x.rank() - 2)));
}

Shape with_matrix(Shape batch, int64_t rows, int64_t columns) {
  batch.push_back(rows);
  batch.push_back(columns);
  return batch;
}

// x with its leading dimensions repeated to `batch`, as one: [product of batch, rows, columns].
Tensor batched(Context& context, const Tensor& x, const Shape& batch) {
  const Tensor repeated = ops::expand(context, x, with_matrix(batch, x.dim(-2), x.dim(-1)));
  return ops::reshape(context, repeated, {element_count(batch), x.dim(-2), x.dim(-1)});
}

// Two matrices, or two batches of as many matrices.
Tensor matmul_batch(Context& context, const Tensor& a, const Tensor& b,
                    const ops::MatmulOptions& options) {
  const bool ta = options.transpose_a, tb = options.transpose_b;
  const int64_t m = a.dim(ta ? -1 : -2), k = a.dim(ta ? -2 : -1);
  const int64_t n = b.dim(tb ? -2 : -1);
  const int64_t batch = a.rank() == 3 ? a.dim(0) : 1;
  const Tensor x = operand(context, a), y = operand(context, b);
  Tensor c = context.empty(a.rank() == 3 ? Shape{batch, m, n} : Shape{m, n}, a.dtype());
  product(context, a.dtype(), batch, m, n, k, matrix_of(x, ta), matrix_of(y, tb), c, false);
  if (!context.needs_grad({x, y})) return c;

  context.record("matmul", {x, y}, {&c}, {{"a", x, requires_grad(y)}, {"b", y, requires_grad(x)}},
                 [=, x = x.detach(), y = y.detach()](Backward& back) {
                   Context& ctx = back.context();
                   const Tensor grad = back.grad_output();
                   const Matrix dc{grad.raw(), false, std::max<int64_t>(n, 1), m * n};
                   if (back.needs(0)) {  // dA = dC B^T, or its transpose B dC^T
                     const Matrix other = matrix_of(y, tb);
                     const GradTarget da = back.target(0, back.grad_dtype(0));
                     if (ta)
                       product(ctx, grad.dtype(), batch, k, m, n, other, dc.flipped(), da.buffer,
                               da.accumulate);
                     else
                       product(ctx, grad.dtype(), batch, m, k, n, dc, other.flipped(), da.buffer,
                               da.accumulate);
                   }
                   if (back.needs(1)) {  // dB = A^T dC, or its transpose dC^T A
                     const Matrix other = matrix_of(x, ta);
                     const GradTarget db = back.target(1, back.grad_dtype(1));
                     if (tb)
                       product(ctx, grad.dtype(), batch, n, k, m, dc.flipped(), other, db.buffer,
                               db.accumulate);
                     else
                       product(ctx, grad.dtype(), batch, k, n, m, other.flipped(), dc, db.buffer,
                               db.accumulate);
                   }
                 });
  return c;
}

}  // namespace

namespace ops {

Tensor matmul(Context& context, const Tensor& a, const Tensor& b, const MatmulOptions& options) {
  const OpRange range(context, "matmul", a, b);
  check_compute_input(context, "matmul", "a", a);
  check_compute_input(context, "matmul", "b", b);
  check_same_dtype("matmul", "a", a, "b", b);
  const bool ta = options.transpose_a, tb = options.transpose_b;
  require(a.rank() >= 1 && b.rank() >= 1, ErrorCode::shape_mismatch, "matmul",
          "takes vectors, matrices and batches of matrices, got shapes ", a.shape(), " and ",
          b.shape());
  require((a.rank() > 1 || !ta) && (b.rank() > 1 || !tb), ErrorCode::shape_mismatch, "matmul",
          "a vector cannot be transposed, got shapes ", a.shape(), " and ", b.shape());
  if (a.rank() == 1 || b.rank() == 1) {  // as matrices, of which a dimension is left out
    const Tensor x = a.rank() == 1 ? reshape(context, a, {1, a.dim(0)}) : a;
    const Tensor y = b.rank() == 1 ? reshape(context, b, {b.dim(0), 1}) : b;
    const Tensor c = matmul(context, x, y, options);
    Shape shape = batch_shape(c);
    if (a.rank() > 1) shape.push_back(c.dim(-2));
    if (b.rank() > 1) shape.push_back(c.dim(-1));
    return reshape(context, c, shape);
  }
  const int64_t m = a.dim(ta ? -1 : -2), k = a.dim(ta ? -2 : -1);
  const int64_t k_of_b = b.dim(tb ? -1 : -2), n = b.dim(tb ? -2 : -1);
  require(k == k_of_b, ErrorCode::shape_mismatch, "matmul", "a ", a.shape(),
          ta ? " transposed" : "", " has ", k, " columns, b ", b.shape(), tb ? " transposed" : "",
          " has ", k_of_b, " rows");
  const Shape batch_a = batch_shape(a), batch_b = batch_shape(b);
  if (a.rank() == b.rank() && a.rank() <= 3 && batch_a == batch_b)
    return matmul_batch(context, a, b, options);
  const Shape batch = broadcast_shape("matmul", batch_a, batch_b);
  if (b.rank() == 2 && !ta) {  // one matrix for every row of a
    const Tensor rows = reshape(context, a, {element_count(batch_a) * m, k});
    return reshape(context, matmul_batch(context, rows, b, options), with_matrix(batch, m, n));
  }
  const Tensor c =
      matmul_batch(context, batched(context, a, batch), batched(context, b, batch), options);
  return reshape(context, c, with_matrix(batch, m, n));
}

Tensor linear(Context& context, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const OpRange range(context, "linear", x, weight, bias);
  check_compute_input(context, "linear", "x", x);
  check_compute_input(context, "linear", "weight", weight);
  check_same_dtype("linear", "x", x, "weight", weight);
  require(weight.rank() == 2, ErrorCode::shape_mismatch, "linear",
          "weight must be [out, in], its shape is ", weight.shape());
  const int64_t out = weight.dim(0), in = weight.dim(1);
  require(x.rank() >= 1 && x.dim(-1) == in, ErrorCode::shape_mismatch, "linear", "x ", x.shape(),
          " does not end in the ", in, " columns of weight ", weight.shape());
  if (bias.defined()) {
    check_compute_input(context, "linear", "bias", bias);
    check_same_dtype("linear", "x", x, "bias", bias);
    require(bias.shape() == Shape{out}, ErrorCode::shape_mismatch, "linear", "bias must be [", out,
            "], its shape is ", bias.shape());
  }
  int64_t rows = 1;
  for (int i = 0; i + 1 < x.rank(); ++i) rows *= x.dim(i);
  const Shape flat{rows, in};
  if (!context.fused_kernels()) {
    Tensor y = matmul(context, reshape(context, x, flat), weight, {.transpose_b = true});
    if (bias.defined()) y = add(context, y, bias);
    return reshape(context, y, linear_shape(x, out));
  }

  // The leading dimensions are merged where strides allow. A contiguous x is recorded itself: the
  // gradient is written straight into its buffer.
  const Tensor input = x.is_contiguous() ? x : operand(context, reshape(context, x, flat));
  const Tensor x2 = x.is_contiguous() ? x.reshaped(flat) : input.detach();
  const Tensor w = operand(context, weight);
  // Only the gradient of the weight needs the input.
  const SavedTensor saved = requires_grad(w) ? SavedTensor(input) : SavedTensor();
  const Tensor offset = bias.defined() ? contiguous(context, bias) : bias;
  Tensor y = context.empty(linear_shape(x, out), x.dtype());
  product(context, x.dtype(), 1, rows, out, in, matrix_of(x2, false), matrix_of(w, true), y, false,
          offset.defined() ? offset.raw() : nullptr);
  if (!context.needs_grad({input, w, offset})) return y;

  context.record("linear", {input, w, offset}, {&y},
                 {{"x", input, saved.is_kept()}, {"weight", w, requires_grad(input)}},
                 [rows, in, out, flat, saved, w = w.detach()](Backward& b) {
                   Context& ctx = b.context();
                   const Tensor grad = b.grad_output();
                   if (b.needs(1) || b.needs(2)) {
                     // A view with strides is flat already.
                     const Tensor kept = b.needs(1) ? saved.get(ctx) : Tensor{};
                     const Tensor rows_of_x =
                         kept.defined() && kept.is_contiguous() ? kept.reshaped(flat) : kept;
                     const Matrix read = kept.defined() ? matrix_of(rows_of_x, false) : Matrix{};
                     weight_and_bias_gradient(b, 1, 2, grad, out,
                                              {rows_of_x, read.transposed, read.ld, rows, in});
                   }
                   if (!b.needs(0)) return;
                   const Matrix dy{grad.raw(), false, std::max<int64_t>(out, 1), 0};
                   const GradTarget dx = b.target(0, b.grad_dtype(0));
                   product(ctx, grad.dtype(), 1, rows, in, out, dy, matrix_of(w, false), dx.buffer,
                           dx.accumulate);
                 });
  return y;
}

}  // namespace ops
}  // namespace trafo
