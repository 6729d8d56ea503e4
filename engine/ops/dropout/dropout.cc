#include "engine/ops/dropout/dropout.h"

#include "engine/ops/binary/binary.h"
#include "engine/ops/checks.h"
#include "engine/ops/masks/masks.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/view/view.h"

namespace trafo {

void check_dropout(const Dropout& dropout, const char* op) {
  // Written so that NaN fails; p is quantised to 16 bits and must not round up to 1.
  require(dropout.p >= 0 && dropout.p < 1 && dropout.threshold() < 65536,
          ErrorCode::invalid_argument, op,
          "the dropout probability must be at least 0 and below 1, ", "got ", dropout.p);
}

namespace ops {

Tensor dropout(Context& context, const Tensor& x, const Dropout& dropout) {
  const OpRange range(context, "dropout", x);
  check_compute_input(context, "dropout", "x", x);
  check_dropout(dropout, "dropout");
  const Tensor input = contiguous(context, x);
  if (!dropout.active()) return input;
  if (!context.fused_kernels()) {
    return multiply(context, input, dropout_mask(context, input.shape(), input.dtype(), dropout));
  }
  Tensor y = context.empty(input.shape(), input.dtype());
  launch(context, OpKernel::dropout_forward, "dropout",
         DropoutForwardParams{input.dtype(), dropout, input.numel(), input.raw(), y.raw()});
  if (context.needs_grad({input}))
    context.record("dropout", {input}, {&y}, {}, [dropout](Backward& b) {
      const Tensor grad = b.grad_output();
      const GradTarget target = b.target(0);
      launch(b.context(), OpKernel::dropout_backward, "dropout",
             DropoutBackwardParams{grad.dtype(), dropout, target.accumulate, grad.numel(),
                                   grad.raw(), target.buffer.raw()});
    });
  return y;
}

}  // namespace ops
}  // namespace trafo
