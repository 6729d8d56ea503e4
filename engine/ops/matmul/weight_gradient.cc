#include "engine/ops/matmul/weight_gradient.h"

#include <algorithm>

#include "engine/ops/op_kernel.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/ops/row_sums.h"

namespace trafo::ops {

void weight_and_bias_gradient(Backward& backward, size_t weight, std::optional<size_t> bias,
                              const Tensor& dy, int64_t out, const GemmInput& x) {
  const DType dtype = dy.dtype();
  weight_and_bias_gradient(backward, weight, bias, dy, out, x.rows, {x.data},
                           [&](const GradTarget& dw) {
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
                             p.b = x.data.raw();
                             p.ldb = x.ld;
                             p.c = dw.buffer.raw();
                             p.ldc = x.width;
                             backward.context().backend().gemm(p);
                           });
}

void weight_and_bias_gradient(Backward& backward, size_t weight, std::optional<size_t> bias,
                              const Tensor& dy, int64_t out, int64_t rows,
                              std::vector<Tensor> reads,
                              const std::function<void(const GradTarget& dw)>& product) {
  Context& context = backward.context();
  const DType dtype = dy.dtype();
  const bool wants_weight = backward.needs(weight), wants_bias = bias && backward.needs(*bias);
  if (!wants_weight && !wants_bias) return;
  bool beside = true;  // nothing waits for these gradients
  GradTarget dw, sums;
  if (wants_bias) {
    sums = backward.target(*bias, stat_dtype(dtype));
    beside = is_bound_gradient(backward, *bias, sums);
  }
  if (wants_weight) {
    dw = backward.target(weight, backward.grad_dtype(weight));
    beside = beside && is_bound_gradient(backward, weight, dw);
  }
  const auto issue = [&] {
    if (wants_weight) product(dw);
    if (wants_bias)
      launch(context, OpKernel::column_sum, "linear",
             ColumnSumParams{dtype, sums.accumulate, rows, out, dy.raw(), sums.buffer.raw()});
  };
  SideWork* side = beside ? SideWork::of(context) : nullptr;
  reads.push_back(dy);
  if (side)
    side->run(reads, {dw.buffer, sums.buffer}, issue);
  else
    issue();
}

}  // namespace trafo::ops
