// The tape of reverse-mode differentiation: nodes in the order in which ops ran, what a backward
// function sees, and the gradients of leaves.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/autograd/variable.h"
#include "engine/core/tensor.h"

namespace trafo {

class Context;
class Backward;
using BackwardFn = std::function<void(Backward&)>;

// Where a kernel puts the gradient of one input.
struct GradTarget {
  Tensor buffer;            // contiguous, of the input's shape
  bool accumulate = false;  // add to what is there; otherwise overwrite every element
};

// What the backward function of a node sees.
class Backward {
 public:
  Context& context() const { return context_; }
  // True if the gradient of this input is wanted; others may be left out.
  bool needs(size_t input) const { return inputs_[input] != nullptr; }
  // The gradient of an output: contiguous; zeros if nothing used that output.
  Tensor grad_output(size_t output = 0) const;
  bool has_grad_output(size_t output) const;
  // True if grad_output() is a one that backward started with; spares an accelerator a read-back.
  bool unit_grad_output(size_t output = 0) const;
  // A buffer for a kernel to write or add to. Call at most once for an input. Buffers of different
  // inputs never overlap, even where one tensor was passed for several of them. `dtype` is what the
  // kernel writes, by default the input's own; where the gradient is kept in another one, it is
  // converted when the node is done.
  GradTarget target(size_t input);
  GradTarget target(size_t input, DType dtype);
  // What the gradient of an input is kept in: what a kernel that can choose should write.
  DType grad_dtype(size_t input) const { return inputs_[input]->grad_dtype; }
  // Adds a finished gradient, of any floating-point dtype. `grad` may share storage with other
  // tensors.
  void add(size_t input, const Tensor& grad);
  // Where the gradient of an input is summed; for what differentiates the input on a tape of its
  // own.
  const std::shared_ptr<Variable>& variable(size_t input) const { return inputs_[input]; }

 private:
  friend class Tape;
  using Variables = std::vector<std::shared_ptr<Variable>>;
  Backward(Context& context, const Variables& inputs, const Variables& outputs)
      : context_(context), inputs_(inputs), outputs_(outputs) {}
  void add_to(Variable& variable, const Tensor& grad);
  // Adds what was put aside; runs after the node's backward function.
  void finish();

  Context& context_;
  const Variables& inputs_;
  const Variables& outputs_;
  // Inputs that are one tensor: the first gets the gradient's own buffer, the others are put aside
  // until the kernel that writes the first has run. So is what has another dtype than the gradient.
  std::vector<const Variable*> handed_out_;
  std::vector<std::pair<Variable*, Tensor>> put_aside_;
};

// Nodes in the order they ran. Only what backward functions captured is kept alive, not every
// intermediate.
class Tape {
 public:
  void record(const char* op, std::span<const Tensor> inputs, std::span<Tensor* const> outputs,
              BackwardFn backward);
  // Walks the nodes from the last to the first and consumes them, also when it ends with an error.
  // `upstream[i]` is the gradient of `roots[i]`; an undefined one means that root takes no part.
  // unit: the upstream gradients are ones.
  void backward(Context& context, std::span<const Tensor> roots, std::span<const Tensor> upstream,
                bool unit = false);
  void clear();
  size_t size() const { return nodes_.size(); }

 private:
  struct Node {
    const char* op;
    std::vector<std::shared_ptr<Variable>> inputs, outputs;
    BackwardFn backward;
  };
  std::vector<Node> nodes_;
};

// --- leaves ---
// Marks a tensor as a leaf whose gradient is wanted (floating point only), or as a constant again.
void set_requires_grad(Tensor& tensor, bool requires_grad);
inline bool requires_grad(const Tensor& tensor) {
  return tensor.defined() && tensor.variable() != nullptr;
}
// The gradient of a leaf; undefined if none has arrived since the last zero_grad.
Tensor grad_of(const Tensor& tensor);
// Forgets the gradient; a bound buffer stays bound and is overwritten by the next gradient.
void zero_grad(const Tensor& tensor);
// The bound gradient of a leaf, for a kernel that writes it or adds to it now, instead of in
// backward; an undefined buffer if the tensor is no leaf with a bound gradient of this dtype. It
// counts as written from here on.
GradTarget claim_grad(const Tensor& tensor, DType dtype);
// Says that a bound buffer holds a gradient: the next one is added to it.
void keep_grad(const Tensor& tensor);
// Makes gradients of a leaf land in `buffer`: a view of a flat workspace, contiguous, of the leaf's
// shape and dtype (float32 for a bf16 leaf).
void bind_grad(const Tensor& tensor, const Tensor& buffer);

// For two contiguous tensors of one shape. Set by ops/, which owns the kernels.
struct GradientKernels {
  using Fn = void (*)(Context&, const Tensor& target, const Tensor& source);
  Fn accumulate;  // target[i] += source[i], of one dtype
  Fn convert;     // target[i] = source[i], in the target's dtype
};
void set_gradient_kernels(const GradientKernels* kernels);  // of static storage duration

}  // namespace trafo
