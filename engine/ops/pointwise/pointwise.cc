#include "engine/ops/pointwise/pointwise.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

#include "engine/core/argument_error.h"
#include "engine/ops/activation/activation.h"
#include "engine/ops/binary/broadcast.h"
#include "engine/ops/checks.h"
#include "engine/ops/op_kernel.h"

namespace trafo {
namespace {

struct Operands {
  Tensor a, b, mask;  // undefined where a kind does not take one
};

struct Function {
  const char* op;
  PointwiseKind kind;
  double first = 0, second = 0;
};

template <class Params>
Params strided_params(const Function& f, DType dtype, const Operands& operands,
                      const Shape& shape) {
  Params p{};
  p.dtype = dtype;
  p.kind = f.kind;
  p.first = f.first;
  p.second = f.second;
  p.rank = shape.rank();
  for (int i = 0; i < shape.rank(); ++i) p.shape[i] = shape[i];
  const Tensor* tensors[] = {&operands.a, &operands.b, &operands.mask};
  for (int k = 0; k < 3; ++k)
    if (tensors[k]->defined()) broadcast_strides(*tensors[k], shape, p.strides[k]);
  p.a = operands.a.defined() ? operands.a.raw() : nullptr;
  p.b = operands.b.defined() ? operands.b.raw() : nullptr;
  p.mask = operands.mask.defined() ? operands.mask.data<int32_t>() : nullptr;
  return p;
}

// shape_b: none of a function of one tensor.
void backward(Backward& back, const Function& f, const Operands& kept, const Shape& shape_a,
              const std::optional<Shape>& shape_b) {
  Context& context = back.context();
  const Tensor grad = back.grad_output();
  auto p = strided_params<PointwiseBackwardParams>(f, grad.dtype(), kept, grad.shape());
  Tensor da, db;
  if (back.needs(0)) da = context.empty(grad.shape(), grad.dtype());
  if (shape_b && back.needs(1)) db = context.empty(grad.shape(), grad.dtype());
  p.dout = grad.raw();
  p.da = da.defined() ? da.raw() : nullptr;
  p.db = db.defined() ? db.raw() : nullptr;
  launch(context, OpKernel::pointwise_backward, f.op, p);
  if (da.defined()) back.add(0, sum_to_shape(context, f.op, std::move(da), shape_a));
  if (db.defined()) back.add(1, sum_to_shape(context, f.op, std::move(db), *shape_b));
}

bool is_choice(PointwiseKind kind) {
  return kind == PointwiseKind::where || kind == PointwiseKind::masked_fill;
}

Tensor pointwise(Context& context, const Function& f, const Operands& in) {
  const OpRange range(context, f.op, in.a, in.b, in.mask);
  const bool binary = in.b.defined();
  const char* name = binary ? "a" : "x";
  check_input(context, f.op, name, in.a);
  const DType dtype = in.a.dtype();
  if (dtype != DType::i32 || !(is_choice(f.kind) || is_comparison(f.kind)))
    check_compute_input(context, f.op, name, in.a);
  Shape shape = in.a.shape();
  if (binary) {
    check_input(context, f.op, "b", in.b);
    check_same_dtype(f.op, "a", in.a, "b", in.b);
    shape = broadcast_shape(f.op, shape, in.b.shape());
  }
  if (is_choice(f.kind)) {
    check_input(context, f.op, "mask", in.mask);
    require(in.mask.dtype() == DType::i32, ErrorCode::dtype_mismatch, f.op,
            "mask must be int32, the result of a comparison; it is ", dtype_name(in.mask.dtype()));
    shape = broadcast_shape(f.op, shape, in.mask.shape());
  }

  const bool compares = is_comparison(f.kind);
  Tensor out = context.empty(shape, compares ? DType::i32 : dtype);
  auto p = strided_params<PointwiseForwardParams>(f, dtype, in, shape);
  p.out = out.raw();
  launch(context, OpKernel::pointwise_forward, f.op, p);
  if (compares || !context.needs_grad({in.a, in.b})) return out;

  // A choice reads its mask alone, everything else its inputs.
  Operands kept;
  if (is_choice(f.kind)) {
    kept.mask = in.mask.detach();
  } else {
    kept.a = in.a.detach();
    if (binary) kept.b = in.b.detach();
  }
  const auto shape_b = binary ? std::optional<Shape>(in.b.shape()) : std::nullopt;
  const auto run = [f, kept, shape_a = in.a.shape(), shape_b](Backward& back) {
    backward(back, f, kept, shape_a, shape_b);
  };
  const std::initializer_list<SavedValue> saved = {
      {name, kept.a}, {"b", kept.b}, {"mask", kept.mask}};
  if (binary)
    context.record(f.op, {in.a, in.b}, {&out}, saved, run);
  else
    context.record(f.op, {in.a}, {&out}, saved, run);
  return out;
}

Tensor unary(Context& context, const char* op, PointwiseKind kind, const Tensor& x,
             double first = 0, double second = 0) {
  return pointwise(context, {op, kind, first, second}, {x, {}, {}});
}

Tensor binary(Context& context, const char* op, PointwiseKind kind, const Tensor& a,
              const Tensor& b) {
  check_input(context, op, "b", b);
  return pointwise(context, {op, kind}, {a, b, {}});
}

// A number that is compared with, or takes the place of, elements of x.
void check_number(const char* op, const Tensor& x, double value) {
  if (!x.defined() || x.dtype() != DType::i32) return;
  constexpr double kLeast = std::numeric_limits<int32_t>::min();
  constexpr double kMost = std::numeric_limits<int32_t>::max();
  require(value == std::floor(value) && value >= kLeast && value <= kMost,
          ErrorCode::invalid_argument, op, "the tensor is int32, and ", value, " is no int32");
}

// x where `comparison` holds for the column's index - the row's and the diagonal, else 0.
Tensor triangle(Context& context, const char* op, const Tensor& x, int64_t diagonal,
                Comparison comparison) {
  check_input(context, op, "x", x);
  require(x.rank() >= 2, ErrorCode::shape_mismatch, op,
          "x must be [.., rows, columns], its shape is ", x.shape());
  const int64_t rows = x.dim(-2), columns = x.dim(-1);
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  require(rows <= kMost / 2 && columns <= kMost / 2, ErrorCode::shape_mismatch, op,
          "at most 2^30 rows and columns, the shape is ", x.shape());
  // The diagonal at a column from -1 to `columns` of each row: beyond them nothing changes.
  std::vector<int32_t> bounds(static_cast<size_t>(rows)), numbers(static_cast<size_t>(columns));
  const int64_t at = std::clamp<int64_t>(diagonal, -kMost / 2, kMost / 2);
  for (int64_t i = 0; i < rows; ++i)
    bounds[static_cast<size_t>(i)] = static_cast<int32_t>(std::clamp<int64_t>(i + at, -1, columns));
  std::iota(numbers.begin(), numbers.end(), 0);
  const Tensor outside = ops::compare(context, context.from_values<int32_t>(numbers, {columns}),
                                      context.from_values<int32_t>(bounds, {rows, 1}), comparison);
  return pointwise(context, {op, PointwiseKind::masked_fill}, {x, {}, outside});
}

}  // namespace

namespace ops {

Tensor abs(Context& context, const Tensor& x) {
  return unary(context, "abs", PointwiseKind::abs, x);
}
Tensor sin(Context& context, const Tensor& x) {
  return unary(context, "sin", PointwiseKind::sin, x);
}
Tensor cos(Context& context, const Tensor& x) {
  return unary(context, "cos", PointwiseKind::cos, x);
}
Tensor erf(Context& context, const Tensor& x) {
  return unary(context, "erf", PointwiseKind::erf, x);
}
Tensor gelu_erf(Context& context, const Tensor& x) {
  return activation(context, x, Activation::gelu_erf);
}
Tensor power(Context& context, const Tensor& x, double exponent) {
  return unary(context, "power", PointwiseKind::power, x, exponent);
}
Tensor clamp(Context& context, const Tensor& x, double low, double high) {
  require_argument(low <= high, "clamp", "low", " must be at most high, got ", low, " and ", high);
  return unary(context, "clamp", PointwiseKind::clamp, x, low, high);
}

Tensor maximum(Context& context, const Tensor& a, const Tensor& b) {
  return binary(context, "maximum", PointwiseKind::maximum, a, b);
}
Tensor minimum(Context& context, const Tensor& a, const Tensor& b) {
  return binary(context, "minimum", PointwiseKind::minimum, a, b);
}
Tensor pow(Context& context, const Tensor& a, const Tensor& b) {
  return binary(context, "pow", PointwiseKind::pow, a, b);
}

Tensor compare(Context& context, const Tensor& a, const Tensor& b, Comparison comparison) {
  const auto kind = static_cast<PointwiseKind>(static_cast<int32_t>(PointwiseKind::equal) +
                                               static_cast<int32_t>(comparison));
  return binary(context, "compare", kind, a, b);
}
Tensor compare(Context& context, const Tensor& a, double b, Comparison comparison) {
  check_input(context, "compare", "a", a);
  check_number("compare", a, b);
  return compare(context, a, context.scalar(b, {}, a.dtype()), comparison);
}
Tensor where(Context& context, const Tensor& mask, const Tensor& a, const Tensor& b) {
  check_input(context, "where", "b", b);
  return pointwise(context, {"where", PointwiseKind::where}, {a, b, mask});
}
Tensor masked_fill(Context& context, const Tensor& x, const Tensor& mask, double value) {
  check_number("masked_fill", x, value);
  return pointwise(context, {"masked_fill", PointwiseKind::masked_fill, value}, {x, {}, mask});
}
Tensor tril(Context& context, const Tensor& x, int64_t diagonal) {
  return triangle(context, "tril", x, diagonal, Comparison::greater);
}
Tensor triu(Context& context, const Tensor& x, int64_t diagonal) {
  return triangle(context, "triu", x, diagonal, Comparison::less);
}

}  // namespace ops
}  // namespace trafo
