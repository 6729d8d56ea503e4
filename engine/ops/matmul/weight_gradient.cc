#include "engine/ops/matmul/weight_gradient.h"

#include <algorithm>

#include "engine/ops/op_kernel.h"
#include "engine/ops/reduce/reduce.h"

namespace trafo::ops {

void weight_and_bias_gradient(Backward& backward, size_t weight, std::optional<size_t> bias,
                              const Tensor& dy, int64_t out, const GemmInput& x) {
  Context& context = backward.context();
  const DType dtype = dy.dtype();
  GradTarget sums;
  if (bias && backward.needs(*bias)) sums = backward.target(*bias, stat_dtype(dtype));
  if (backward.needs(weight)) {
    const GradTarget dw = backward.target(weight, backward.grad_dtype(weight));
    GemmParams p;
    p.dtype = dtype;
    p.trans_a = true;
    p.trans_b = x.transposed;
    p.accumulate = dw.accumulate;
    p.c_is_f32 = dtype == DType::bf16 && dw.buffer.dtype() == DType::f32;
    p.m = out;
    p.n = x.width;
    p.k = x.rows;
    p.a = dy.raw();
    p.lda = std::max<int64_t>(out, 1);
    p.b = x.data;
    p.ldb = x.ld;
    p.c = dw.buffer.raw();
    p.ldc = x.width;
    context.backend().gemm(p);
  }
  if (sums.buffer.defined())
    launch(context, OpKernel::column_sum, "linear",
           ColumnSumParams{dtype, sums.accumulate, x.rows, out, dy.raw(), sums.buffer.raw()});
}

}  // namespace trafo::ops
