// Gradients of the weight and the bias of y = x W^T + bias.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/runtime/context.h"

namespace trafo::ops {

// x [rows, in] as a GEMM reads it: rows `ld` apart, or stored transposed.
struct GemmInput {
  Tensor data;
  bool transposed;
  int64_t ld;
  int64_t rows, width;
};

// dW [out, in] = dy^T x and dbias [out], the sum over rows of dy [rows, out], for each of the
// inputs number `weight` and `bias` (if given) whose gradient is wanted, straight into their
// buffers. x.data may be undefined where dW is not wanted. In a training step on an accelerator
// they run beside the main order (SideWork): call this before dx is issued.
void weight_and_bias_gradient(Backward& backward, size_t weight, std::optional<size_t> bias,
                              const Tensor& dy, int64_t out, const GemmInput& x);
// The same with dW from `product`, which issues it (SideWork::run) and reads `reads`.
void weight_and_bias_gradient(Backward& backward, size_t weight, std::optional<size_t> bias,
                              const Tensor& dy, int64_t out, int64_t rows,
                              std::vector<Tensor> reads,
                              const std::function<void(const GradTarget& dw)>& product);

// Whether Backend::grouped_gemm can sum up dy for `bias` while it computes dW = dy^T x, `gemm`,
// which then does. `bias` without a buffer is not wanted. alone: see Backend::sums_in_gemm.
bool sum_bias_in_gemm(const Context& context, GemmParams& gemm, const GradTarget& bias, bool alone);

}  // namespace trafo::ops
