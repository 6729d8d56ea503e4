#include "engine/ops/cast/cast.h"

#include "engine/ops/checks.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/view/view.h"

namespace trafo {
namespace ops {

Tensor cast(Context& context, const Tensor& x, DType dtype) {
  const OpRange range(context, "cast", x);
  check_input(context, "cast", "x", x);
  const Tensor input = contiguous(context, x);
  if (x.dtype() == dtype) return input;
  Tensor y = context.empty(input.shape(), dtype);
  launch(context, OpKernel::cast_forward, "cast",
         CastForwardParams{input.dtype(), dtype, input.numel(), input.raw(), y.raw()});
  if (is_floating(dtype) && context.needs_grad({input}))  // an integer has no gradient
    context.record("cast", {input}, {&y}, {}, [](Backward& b) {
      const Tensor grad = b.grad_output();
      const DType to = b.grad_dtype(0);
      if (grad.dtype() == to) return b.add(0, grad);
      Tensor dx = b.context().empty(grad.shape(), to);
      launch(b.context(), OpKernel::cast_backward, "cast",
             CastBackwardParams{grad.dtype(), to, grad.numel(), grad.raw(), dx.raw()});
      b.add(0, dx);
    });
  return y;
}

}  // namespace ops

void convert_into(Context& context, const Tensor& target, const Tensor& source) {
  launch(context, OpKernel::cast_forward, "backward",
         CastForwardParams{source.dtype(), target.dtype(), source.numel(), source.raw(),
                           target.raw()});
}

}  // namespace trafo
