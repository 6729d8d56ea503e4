#include "engine/ops/matmul/weight_gradient.h"

#include <algorithm>

#include "engine/ops/op_kernel.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/ops/row_sums.h"

namespace trafo::ops {

namespace {

struct Targets {
  GradTarget weight, bias;   // without a buffer: not wanted
  SideWork* side = nullptr;  // null: they are computed in the main order

  std::vector<Tensor> buffers() const { return {weight.buffer, bias.buffer}; }
  template <class Issue>
  void run(const std::vector<Tensor>& reads, Issue&& issue) const {
    if (side)
      side->run(reads, buffers(), issue);
    else
      issue();
  }
};

Targets targets_of(Backward& backward, size_t weight, std::optional<size_t> bias, DType dtype) {
  Targets to;
  bool beside = true;  // nothing waits for these gradients
  if (bias && backward.needs(*bias)) {
    to.bias = backward.target(*bias, stat_dtype(dtype));
    beside = is_bound_gradient(backward, *bias, to.bias);
  }
  if (backward.needs(weight)) {
    to.weight = backward.target(weight, backward.grad_dtype(weight));
    beside = beside && is_bound_gradient(backward, weight, to.weight);
  }
  if (beside) to.side = backward.context().step().side_work;
  return to;
}

// Null if the gradient of the bias is not wanted.
std::function<void()> bias_sum(Context& context, const GradTarget& to, const Tensor& dy,
                               int64_t rows, int64_t out) {
  if (!to.buffer.defined()) return nullptr;
  return [&context, to, dy, rows, out] {
    launch(context, OpKernel::column_sum, "linear",
           ColumnSumParams{dy.dtype(), to.accumulate, rows, out, dy.raw(), to.buffer.raw()});
  };
}

GemmParams weight_gemm(const Tensor& dy, int64_t out, const GemmInput& x, const GradTarget& dw) {
  GemmParams p;
  p.dtype = dy.dtype();
  p.trans_a = true;
  p.trans_b = x.transposed;
  p.accumulate = dw.accumulate;
  p.c_is_f32 = p.dtype == DType::bf16 && dw.buffer.dtype() == DType::f32;
  p.m = out;
  p.n = x.width;
  p.k = x.rows;
  p.a = dy.raw();
  p.lda = std::max<int64_t>(out, 1);
  p.b = x.data.raw();
  p.ldb = x.ld;
  p.c = dw.buffer.raw();
  p.ldc = x.width;
  return p;
}

}  // namespace

void weight_and_bias_gradient(Backward& backward, size_t weight, std::optional<size_t> bias,
                              const Tensor& dy, int64_t out, const GemmInput& x) {
  Context& context = backward.context();
  const Targets to = targets_of(backward, weight, bias, dy.dtype());
  const auto sum_bias = bias_sum(context, to.bias, dy, x.rows, out);
  if (!to.weight.buffer.defined()) {
    if (sum_bias) to.run({dy}, sum_bias);
    return;
  }
  GemmParams gemm = weight_gemm(dy, out, x, to.weight);
  const std::vector<Tensor> reads = {dy, x.data};
  Backend& backend = context.backend();
  const bool collected = to.side && backend.groups_gemms(gemm.dtype);
  const bool summed = sum_bias_in_gemm(context, gemm, to.bias, !collected);
  const auto rest = summed ? std::function<void()>() : sum_bias;
  if (collected) return to.side->add_gemm(gemm, reads, to.buffers(), rest);
  to.run(reads, [&] {
    if (summed)
      backend.grouped_gemm({&gemm, 1});
    else
      backend.gemm(gemm);
    if (rest) rest();
  });
}

void weight_and_bias_gradient(Backward& backward, size_t weight, std::optional<size_t> bias,
                              const Tensor& dy, int64_t out, int64_t rows,
                              std::vector<Tensor> reads,
                              const std::function<void(const GradTarget& dw)>& product) {
  const Targets to = targets_of(backward, weight, bias, dy.dtype());
  const auto sum_bias = bias_sum(backward.context(), to.bias, dy, rows, out);
  if (!to.weight.buffer.defined() && !sum_bias) return;
  reads.push_back(dy);
  to.run(reads, [&] {
    if (to.weight.buffer.defined()) product(to.weight);
    if (sum_bias) sum_bias();
  });
}

bool sum_bias_in_gemm(const Context& context, GemmParams& gemm, const GradTarget& bias,
                      bool alone) {
  if (!bias.buffer.defined() || !context.bias_sums_in_gemms() ||
      !context.backend().sums_in_gemm(gemm, alone))
    return false;
  gemm.a_sums = bias.buffer.raw();
  gemm.accumulate_a_sums = bias.accumulate;
  return true;
}

}  // namespace trafo::ops
