#include "engine/ops/binary/binary.h"

#include "engine/ops/binary/broadcast.h"
#include "engine/ops/checks.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/unary/unary.h"

namespace trafo {
namespace {

const char* kind_name(BinaryKind kind) {
  switch (kind) {
    case BinaryKind::add:
      return "add";
    case BinaryKind::subtract:
      return "subtract";
    case BinaryKind::multiply:
      return "multiply";
    case BinaryKind::divide:
      return "divide";
    case BinaryKind::select:
      return "select";
  }
  return "binary";
}

Tensor negated(Context& context, const char* op, const Tensor& grad) {
  const Tensor out = context.empty(grad.shape(), grad.dtype());
  launch(context, OpKernel::unary_forward, op,
         UnaryForwardParams{grad.dtype(), UnaryKind::scale, -1.0, grad.numel(), grad.raw(),
                            out.raw()});
  return out;
}

// add and subtract: the gradients are the upstream one, up to a sign.
void linear_backward(Backward& back, BinaryKind kind, const Shape& shape_a, const Shape& shape_b) {
  Context& context = back.context();
  const char* op = kind_name(kind);
  const Tensor grad = back.grad_output();
  if (back.needs(0)) back.add(0, sum_to_shape(context, op, grad, shape_a));
  if (back.needs(1)) {
    const Tensor summed = sum_to_shape(context, op, grad, shape_b);
    back.add(1, kind == BinaryKind::subtract ? negated(context, op, summed) : summed);
  }
}

// a: undefined unless the gradient of b is needed.
void product_backward(Backward& back, BinaryKind kind, const Shape& shape_a, const Tensor& a,
                      const Tensor& b) {
  Context& context = back.context();
  const char* op = kind_name(kind);
  const Tensor grad = back.grad_output();
  const Shape& shape = grad.shape();
  BinaryBackwardParams params{};
  params.dtype = grad.dtype();
  params.kind = kind;
  params.rank = shape.rank();
  for (int i = 0; i < shape.rank(); ++i) params.shape[i] = shape[i];
  if (a.defined()) broadcast_strides(a, shape, params.a_strides);
  broadcast_strides(b, shape, params.b_strides);
  params.a = a.defined() ? a.raw() : nullptr;
  params.b = b.raw();
  params.dout = grad.raw();
  Tensor da, db;
  if (back.needs(0)) da = context.empty(shape, grad.dtype());
  if (back.needs(1)) db = context.empty(shape, grad.dtype());
  params.da = da.defined() ? da.raw() : nullptr;
  params.db = db.defined() ? db.raw() : nullptr;
  launch(context, OpKernel::binary_backward, op, params);
  // Moved, so that the tape can keep the buffer instead of a copy.
  if (da.defined()) back.add(0, sum_to_shape(context, op, std::move(da), shape_a));
  if (db.defined()) back.add(1, sum_to_shape(context, op, std::move(db), b.shape()));
}

Tensor binary(Context& context, BinaryKind kind, const Tensor& a, const Tensor& b) {
  const char* op = kind_name(kind);
  const OpRange range(context, op, a, b);
  check_compute_input(context, op, "a", a);
  check_compute_input(context, op, "b", b);
  check_same_dtype(op, "a", a, "b", b);
  const Shape shape = broadcast_shape(op, a.shape(), b.shape());
  Tensor out = context.empty(shape, a.dtype());
  BinaryForwardParams params{};
  params.dtype = a.dtype();
  params.kind = kind;
  params.rank = shape.rank();
  for (int i = 0; i < shape.rank(); ++i) params.shape[i] = shape[i];
  broadcast_strides(a, shape, params.a_strides);
  broadcast_strides(b, shape, params.b_strides);
  params.a = a.raw();
  params.b = b.raw();
  params.out = out.raw();
  launch(context, OpKernel::binary_forward, op, params);
  if (!context.needs_grad({a, b})) return out;

  if (kind == BinaryKind::add || kind == BinaryKind::subtract) {
    context.record(op, {a, b}, {&out}, {},
                   [kind, shape_a = a.shape(), shape_b = b.shape()](Backward& back) {
                     linear_backward(back, kind, shape_a, shape_b);
                   });
  } else {
    // a is read for the gradient of b alone; b for the gradient of a, and always to divide.
    const Tensor kept = requires_grad(b) ? a.detach() : Tensor{};
    const bool reads_b = kind == BinaryKind::divide || requires_grad(a);
    context.record(op, {a, b}, {&out}, {{"a", kept}, {"b", b, reads_b}},
                   [kind, shape_a = a.shape(), x = kept, y = b.detach()](Backward& back) {
                     product_backward(back, kind, shape_a, x, y);
                   });
  }
  return out;
}

}  // namespace

namespace ops {

Tensor add(Context& context, const Tensor& a, const Tensor& b) {
  return binary(context, BinaryKind::add, a, b);
}
Tensor subtract(Context& context, const Tensor& a, const Tensor& b) {
  return binary(context, BinaryKind::subtract, a, b);
}
Tensor multiply(Context& context, const Tensor& a, const Tensor& b) {
  return binary(context, BinaryKind::multiply, a, b);
}
Tensor divide(Context& context, const Tensor& a, const Tensor& b) {
  return binary(context, BinaryKind::divide, a, b);
}
Tensor select(Context& context, const Tensor& a, const Tensor& mask) {
  return binary(context, BinaryKind::select, a, mask.defined() ? mask.detach() : mask);
}

}  // namespace ops
}  // namespace trafo
