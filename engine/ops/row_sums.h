// Gradients of parameters that a backward kernel sums over rows: dgamma and dbeta of a norm, dbias.
#pragma once

#include <initializer_list>
#include <vector>

#include "engine/ops/op_kernel.h"
#include "engine/runtime/side_work.h"

namespace trafo {

// Whether the buffer is the bound gradient of the leaf, which nothing in the backward pass reads.
// Otherwise Backward uses it on the first stream as soon as the node has run.
inline bool is_bound_gradient(const Backward& backward, size_t input, const GradTarget& target) {
  const Variable& variable = *backward.variable(input);
  return variable.leaf && variable.bound && same_tensor(target.buffer, variable.grad);
}

struct RowSum {
  size_t input;
  const GradTarget& target;  // without a buffer: not wanted
};

// Calls `issue`, which launches a kernel over rows [.., width] that writes these sums over the
// rows. In a training step on an accelerator, its blocks leave partial sums. A second kernel adds
// them up beside the main order (SideWork).
template <class Issue>
void issue_with_row_sums(const Backward& backward, int64_t width,
                         std::initializer_list<RowSum> sums, const Issue& issue) {
  // Room for four blocks on each of 160 multiprocessors, above the 132 of an H100 or H200 and the
  // 148 of a B200. A kernel with more blocks adds its partial sums up itself.
  constexpr int64_t kMaxPartials = 4 * 160;
  const Context& context = backward.context();
  SideWork* side = context.step().side_work;
  std::vector<Tensor> buffers;
  for (const RowSum& sum : sums) {
    if (!sum.target.buffer.defined()) continue;
    if (!is_bound_gradient(backward, sum.input, sum.target)) side = nullptr;
    buffers.push_back(sum.target.buffer);
  }
  if (!side || buffers.empty()) return issue();
  const Tensor partials =
      context.empty({kMaxPartials, static_cast<int64_t>(sums.size()), width}, DType::f32);
  side->run_sums(partials, buffers, issue);
}

// The same for a backward kernel over rows [.., params.width].
template <class Params>
void launch_with_row_sums(const Backward& backward, OpKernel kernel, const char* op,
                          const Params& params, std::initializer_list<RowSum> sums) {
  issue_with_row_sums(backward, params.width, sums,
                      [&] { launch(backward.context(), kernel, op, params); });
}

}  // namespace trafo
