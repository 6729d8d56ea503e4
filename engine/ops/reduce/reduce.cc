#include "engine/ops/reduce/reduce.h"

#include "engine/ops/checks.h"
#include "engine/ops/op_kernel.h"
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
          op, "the ", op, " of no elements is undefined; the input has shape ", x.shape().str());
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

}  // namespace ops
}  // namespace trafo
