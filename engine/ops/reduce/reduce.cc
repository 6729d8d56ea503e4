#include "engine/ops/reduce/reduce.h"

#include "engine/ops/checks.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/unary/unary.h"
#include "engine/ops/view/view.h"

namespace trafo {
namespace {

const char* kind_name(ReduceKind kind) {
  switch (kind) {
    case ReduceKind::sum:
      return "sum";
    case ReduceKind::mean:
      return "mean";
    case ReduceKind::max:
      return "max";
  }
  return "reduce";
}

Tensor reduce(Context& context, ReduceKind kind, const Tensor& x, const Shape& out_shape,
              int64_t outer, int64_t size, int64_t inner) {
  const char* op = kind_name(kind);
  const OpRange range(context, op, x);
  require(kind == ReduceKind::sum || size > 0 || outer * inner == 0, ErrorCode::invalid_argument,
          op, "the ", op, " of no elements is undefined; the input has shape ", x.shape());
  const Tensor input = ops::contiguous(context, x);
  Tensor y = context.empty(out_shape, input.dtype());
  launch(context, OpKernel::reduce_forward, op,
         ReduceForwardParams{input.dtype(), kind, outer, size, inner, input.raw(), y.raw()});
  if (!context.needs_grad({input})) return y;

  Tensor saved_x, saved_y;
  if (kind == ReduceKind::max) {
    saved_x = input.detach();
    saved_y = y.detach();
  }
  context.record(op, {input}, {&y}, {{"x", saved_x}, {kResult, saved_y}}, [=](Backward& b) {
    const Tensor grad = b.grad_output();
    const GradTarget target = b.target(0);
    launch(b.context(), OpKernel::reduce_backward, op,
           ReduceBackwardParams{grad.dtype(), kind, target.accumulate, outer, size, inner,
                                saved_x.defined() ? saved_x.raw() : nullptr,
                                saved_y.defined() ? saved_y.raw() : nullptr, grad.raw(),
                                target.buffer.raw()});
  });
  return y;
}

Tensor reduce_all(Context& context, ReduceKind kind, const Tensor& x) {
  check_compute_input(context, kind_name(kind), "x", x);
  return reduce(context, kind, x, {1}, 1, x.numel(), 1);
}

Tensor reduce_dim(Context& context, ReduceKind kind, const Tensor& x, int dim, bool keep_dim) {
  check_compute_input(context, kind_name(kind), "x", x);
  const int d = checked_dim(kind_name(kind), dim, x.rank());
  Shape out_shape;
  int64_t outer = 1, inner = 1;
  for (int i = 0; i < x.rank(); ++i) {
    if (i != d) out_shape.push_back(x.shape()[i]);
    if (i == d && keep_dim) out_shape.push_back(1);
    if (i < d) outer *= x.shape()[i];
    if (i > d) inner *= x.shape()[i];
  }
  return reduce(context, kind, x, out_shape, outer, x.shape()[d], inner);
}

// The reduced dimensions after the others, and then as one.
Tensor reduce_dims(Context& context, ReduceKind kind, const Tensor& x, std::span<const int> dims,
                   bool keep_dim) {
  const char* op = kind_name(kind);
  check_compute_input(context, op, "x", x);
  std::vector<bool> reduced(static_cast<size_t>(x.rank()), dims.empty());
  for (const int dim : dims) {
    const auto d = static_cast<size_t>(checked_dim(op, dim, x.rank()));
    require(!reduced[d], ErrorCode::invalid_argument, op, "dimension ", d, " was given twice");
    reduced[d] = true;
  }
  std::vector<int> order, behind;
  Shape out_shape;
  int64_t outer = 1, size = 1;
  for (int i = 0; i < x.rank(); ++i) {
    const bool is_reduced = reduced[static_cast<size_t>(i)];
    (is_reduced ? behind : order).push_back(i);
    (is_reduced ? size : outer) *= x.shape()[i];
    if (!is_reduced) out_shape.push_back(x.shape()[i]);
    if (is_reduced && keep_dim) out_shape.push_back(1);
  }
  order.insert(order.end(), behind.begin(), behind.end());
  bool in_order = true;
  for (size_t i = 0; i < order.size(); ++i) in_order = in_order && order[i] == static_cast<int>(i);
  const Tensor rows = in_order ? x : ops::permute(context, x, order);
  return reduce(context, kind, rows, out_shape, outer, size, 1);
}

}  // namespace

namespace ops {

Tensor sum(Context& context, const Tensor& x) {
  return reduce_all(context, ReduceKind::sum, x);
}
Tensor mean(Context& context, const Tensor& x) {
  return reduce_all(context, ReduceKind::mean, x);
}
Tensor sum(Context& context, const Tensor& x, int dim, bool keep_dim) {
  return reduce_dim(context, ReduceKind::sum, x, dim, keep_dim);
}
Tensor mean(Context& context, const Tensor& x, int dim, bool keep_dim) {
  return reduce_dim(context, ReduceKind::mean, x, dim, keep_dim);
}
Tensor max(Context& context, const Tensor& x, int dim, bool keep_dim) {
  return reduce_dim(context, ReduceKind::max, x, dim, keep_dim);
}

Tensor sum(Context& context, const Tensor& x, std::span<const int> dims, bool keep_dim) {
  return reduce_dims(context, ReduceKind::sum, x, dims, keep_dim);
}
Tensor mean(Context& context, const Tensor& x, std::span<const int> dims, bool keep_dim) {
  return reduce_dims(context, ReduceKind::mean, x, dims, keep_dim);
}
Tensor max(Context& context, const Tensor& x, std::span<const int> dims, bool keep_dim) {
  return reduce_dims(context, ReduceKind::max, x, dims, keep_dim);
}
Tensor min(Context& context, const Tensor& x, std::span<const int> dims, bool keep_dim) {
  return scale(context, max(context, scale(context, x, -1), dims, keep_dim), -1);
}

}  // namespace ops
}  // namespace trafo
