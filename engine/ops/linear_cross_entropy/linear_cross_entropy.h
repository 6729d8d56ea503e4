// cross_entropy(x W^T + b): the vocabulary projection and its loss without ever holding all logits.
//
// Rows are taken in chunks whose logits fit a byte budget. When a gradient is wanted, each chunk's
// logits turn into their gradient in place and are multiplied out into dx, dW and db at once, in
// the forward pass (the weights' sum is known before the first chunk); backward only scales by the
// upstream gradient, if it is not one. Reduction sum and mean only. dW is summed over chunks in row
// order, so the result depends on the chunk size by rounding alone, never on the number of threads.
//
// With a teacher the loss is as in ops/distillation: the teacher's logits exist for a chunk, too.
#pragma once

#include <optional>

#include "engine/ops/distillation/distillation.h"

namespace trafo::ops {

struct Fp8Matrix;

// A model to learn from: its logits are x weight^T + bias. Gets no gradient.
struct DistillationTeacher {
  Tensor x;                             // [T, any width], of the student's dtype
  Tensor weight;                        // [V, the same width]
  Tensor bias;                          // [V] or undefined
  double share = 0.5, temperature = 1;  // see DistillationOptions; share above 0
  double soft_cap = 0;                  // of its logits; 0: none
};

struct LinearCrossEntropyOptions {
  CrossEntropyOptions loss = {};
  // Without class weights: UNSUPPORTED.
  std::optional<DistillationTeacher> teacher = {};
  // Above 0: the loss is of soft_cap(x W^T + b) (ops/unary), as in Gemma 2. 0: none.
  double soft_cap = 0;
  // Upper bound of the logits held at a time (the teacher's included, and with a soft cap also the
  // logits without it), at least one row. Default: 8
  // MiB on the CPU, whose caches they should fit. Elsewhere twice the weight in float32, within 80
  // and 208 MiB, or one wave of tiles of dx if that is more and at most 32 bytes for each element
  // of x.
  std::optional<int64_t> chunk_bytes = {};
  // Gradients of weight and bias go straight into their bound buffers, where they are leaves that
  // have some (bind_grad): no copy of the size of the vocabulary matrix. For a caller that will run
  // backward once, with an upstream gradient of one; any other is an error (INTERNAL).
  bool gradients_at_once = false;
  // The weight in E4M3 with both copies (ops/fp8). The logits and, where a gradient is wanted, dx
  // are then products of FP8 operands: x in E4M3, the gradient of the logits in E5M2. dW and db are
  // computed from the gradient before this rounding, in the dtype of x. With a teacher or a soft
  // cap dx is as without FP8, and so are the teacher's logits. The width is a multiple of 16, x is
  // float32 on the CPU and bfloat16 on CUDA, on cards from compute capability 8.9 on; anything else
  // is INVALID_ARGUMENT or UNSUPPORTED. Is read before the call returns.
  const Fp8Matrix* fp8_weight = nullptr;
};

// x [T, C], weight [V, C], bias [V] or undefined, labels [T].
CrossEntropyOutput linear_cross_entropy(Context& context, const Tensor& x, const Tensor& weight,
                                        const Tensor& bias, const Tensor& labels,
                                        const LinearCrossEntropyOptions& options = {});
CrossEntropyOutput linear_cross_entropy_reference(Context& context, const Tensor& x,
                                                  const Tensor& weight, const Tensor& bias,
                                                  const Tensor& labels,
                                                  const LinearCrossEntropyOptions& options);

}  // namespace trafo::ops
