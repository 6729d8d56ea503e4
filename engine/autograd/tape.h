// Reverse-mode differentiation: the tape of recorded ops, the interface of backward functions, and
// the gradients of leaves.
#pragma once

#include <functional>
#include <initializer_list>
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

// Where a kernel writes the gradient of one input.
struct GradTarget {
  Tensor buffer;            // contiguous, of the input's shape
  bool accumulate = false;  // add to the buffer; otherwise overwrite every element
};

// A tensor that a backward function reads, of whose memory the caller of the op may have a handle.
// Backward is refused if the memory was written to since the op was recorded. The backward function
// keeps the memory alive.
struct SavedValue {
  SavedValue(const char* value_name, const Tensor& value, bool is_read = true)
      : name(value_name), storage(is_read && value.defined() ? value.storage().get() : nullptr) {}
  const char* name;  // of an input, or kResult; of static storage duration
  const Storage* storage;
};
inline constexpr const char* kResult = "its result";

// INVALID_ARGUMENT, with `op` as the origin, if memory of `name` is no longer of this version.
void check_version(const char* op, const char* name, const Storage& storage, uint64_t version);

// The argument of a backward function.
class Backward {
 public:
  Context& context() const { return context_; }
  // True if the gradient of this input is needed. The function may skip the others.
  bool needs(size_t input) const { return inputs_[input] != nullptr; }
  // The gradient of an output, contiguous; zeros if nothing used the output.
  Tensor grad_output(size_t output = 0) const;
  bool has_grad_output(size_t output) const;
  // True if grad_output() is the constant one with which backward started, so that an accelerator
  // need not be read back.
  bool unit_grad_output(size_t output = 0) const;
  // The buffer for the gradient of an input. Call at most once per input. Buffers of different
  // inputs never overlap, even if one tensor was passed for several of them. `dtype` is what the
  // kernel writes, by default the input's own. If the gradient is kept in another dtype, it is
  // converted after the backward function.
  GradTarget target(size_t input);
  GradTarget target(size_t input, DType dtype);
  // The dtype in which the gradient of an input is kept. A kernel that can choose should write it.
  DType grad_dtype(size_t input) const { return inputs_[input]->grad_dtype; }
  // Adds a gradient of any floating-point dtype. `grad` may share storage with other tensors.
  void add(size_t input, const Tensor& grad);
  // The Variable of an input, for code that differentiates on a separate tape.
  const std::shared_ptr<Variable>& variable(size_t input) const { return inputs_[input]; }

 private:
  friend class Tape;
  using Variables = std::vector<std::shared_ptr<Variable>>;
  Backward(Context& context, const Variables& inputs, const Variables& outputs)
      : context_(context), inputs_(inputs), outputs_(outputs) {}
  void add_to(Variable& variable, const Tensor& grad);
  // Adds the deferred gradients, after the node's backward function.
  void finish();

  Context& context_;
  const Variables& inputs_;
  const Variables& outputs_;
  // If one tensor was passed for several inputs, the first gets the gradient's own buffer. The
  // others, and gradients in another dtype, get a buffer that is added when the kernels have run.
  std::vector<const Variable*> handed_out_;
  std::vector<std::pair<Variable*, Tensor>> deferred_;
};

// Nodes in the order in which their ops ran. It keeps alive what the backward functions have
// captured, not every intermediate.
class Tape {
 public:
  void record(const char* op, std::span<const Tensor> inputs, std::span<Tensor* const> outputs,
              std::initializer_list<SavedValue> saved, BackwardFn backward);
  // Walks the nodes from last to first and consumes them, even if it ends with an error.
  // `upstream[i]` is the gradient of `roots[i]`; if undefined, the root is skipped. unit: all
  // upstream gradients are ones. INVALID_ARGUMENT: a backward function calls it, or records.
  void backward(Context& context, std::span<const Tensor> roots, std::span<const Tensor> upstream,
                bool unit = false);
  void clear();
  size_t size() const { return nodes_.size(); }

 private:
  struct Node {
    const char* op;
    std::vector<std::shared_ptr<Variable>> inputs, outputs;
    size_t first_saved;  // in saved_; they reach to those of the next node
    BackwardFn backward;
  };
  struct Saved {
    SavedValue value;
    uint64_t version;  // of the memory when the op was recorded
  };
  std::vector<Node> nodes_;
  std::vector<Saved> saved_;  // of all nodes: a list for each would cost an allocation
  bool is_walked_ = false;
};

// --- leaves ---
// Makes a floating-point tensor a leaf that gets a gradient, or a constant again.
void set_requires_grad(Tensor& tensor, bool requires_grad);
inline bool requires_grad(const Tensor& tensor) {
  return tensor.defined() && tensor.variable() != nullptr;
}
// The gradient of a leaf; undefined if there has been none since the last zero_grad.
Tensor grad_of(const Tensor& tensor);
// Drops the gradient. A bound buffer stays bound, and the next gradient overwrites it.
void zero_grad(const Tensor& tensor);
// The bound gradient of a leaf, for a kernel that writes or adds to it during the forward pass. The
// buffer is undefined if the tensor is no leaf with a bound gradient of this dtype. The gradient
// counts as written from then on.
GradTarget claim_grad(const Tensor& tensor, DType dtype);
// Declares that a bound buffer holds a gradient, to which the next one is added.
void keep_grad(const Tensor& tensor);
// Makes `buffer` the gradient of a leaf: a contiguous view of the flat workspace, with the leaf's
// shape and dtype (float32 for a bf16 leaf).
void bind_grad(const Tensor& tensor, const Tensor& buffer);

// Operate on two contiguous tensors of one shape. ops/ sets them, because it owns the kernels.
struct GradientKernels {
  using Fn = void (*)(Context&, const Tensor& target, const Tensor& source);
  Fn accumulate;  // target[i] += source[i], of one dtype
  Fn convert;     // target[i] = source[i], in the target's dtype
};
void set_gradient_kernels(const GradientKernels* kernels);  // of static storage duration

}  // namespace trafo
