// A Context is where work happens: a device, a tape, and the switches that ops obey. One thread
// uses it at a time; it may move between threads.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/autograd/profiler.h"
#include "engine/autograd/variable.h"
#include "engine/backend/backend.h"
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

// What backward computes a second time instead of keeping it. Gradients are the same bits under
// each.
enum class Recompute : int32_t {
  none = 0,
  selective = 1,  // what is large and cheap: outputs of norms and of activations
  full = 2        // everything between the layers' boundaries (models decide where)
};

class Context {
 public:
  explicit Context(std::shared_ptr<Backend> backend)
      : backend_(std::move(backend)), profiler_(*backend_) {
    profiler_.look_for_tools();
    if (profiler_.annotates()) looking_on_ = &profiler_;
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  Backend& backend() const { return *backend_; }
  Device device() const { return backend_->device(); }

  // --- tensors ---
  Tensor empty(const Shape& shape, DType dtype) const;  // contents unspecified
  Tensor zeros(const Shape& shape, DType dtype) const;
  // Copies `bytes` of host memory, which must be exactly the tensor's size.
  Tensor from_host(const void* host, size_t bytes, const Shape& shape, DType dtype) const;
  template <class T>
  Tensor from_values(std::span<const T> values, const Shape& shape) const {
    return from_host(values.data(), values.size_bytes(), shape, dtype_of<T>);
  }
  Tensor scalar(double value, const Shape& shape, DType dtype) const;  // `shape` has one element
  // [1], the same constant at every call: nothing is copied but the first time.
  const Tensor& one(DType dtype) const;
  // Rounds to `dtype`, a floating-point one.
  Tensor from_doubles(std::span<const double> values, const Shape& shape, DType dtype) const;
  // Copies a contiguous tensor out; waits for the device.
  void to_host(const Tensor& tensor, void* host, size_t bytes) const;
  template <class T>
  std::vector<T> values(const Tensor& tensor) const {
    (void)tensor.data<T>();  // checks the dtype
    std::vector<T> out(static_cast<size_t>(tensor.numel()));
    to_host(tensor, out.data(), out.size() * sizeof(T));
    return out;
  }
  double item(const Tensor& tensor) const;  // the one element of a floating-point tensor

  // --- autodiff ---
  bool recording() const { return grad_enabled_; }
  void set_recording(bool enabled) { grad_enabled_ = enabled; }
  // True if an op on these inputs will be recorded: it must keep what its backward needs.
  bool needs_grad(std::initializer_list<Tensor> inputs) const;
  // Records an op. `outputs` get Variables. A null `backward` is an error (UNSUPPORTED) when a
  // gradient is wanted.
  void record(const char* op, std::initializer_list<Tensor> inputs,
              std::initializer_list<Tensor*> outputs, BackwardFn backward);
  void record(const char* op, std::span<const Tensor> inputs, std::span<Tensor* const> outputs,
              BackwardFn backward);
  // Gradients of all leaves that `root` depends on, added to what they hold; frees the graph.
  // `upstream` is the gradient of `root` (contiguous, its shape and dtype); default: one, for a
  // root of one element only. The default is known on the host, an upstream gradient is not.
  void backward(const Tensor& root, const Tensor& upstream = {});
  Tape& tape() { return *tape_; }

  // --- profiles ---
  // Null while nobody looks on: the one test that an op costs then.
  Profiler* profiler() const { return looking_on_; }
  // See Profiler::start. Never changes a result.
  void start_profile(bool graphs = false) {
    profiler_.start(graphs);
    looking_on_ = &profiler_;
  }
  bool profiling() const { return profiler_.recording(); }
  Trace finish_profile();

  // --- switches ---
  bool fused_kernels() const { return fused_; }  // off: every op runs its composed reference
  void set_fused_kernels(bool fused) { fused_ = fused; }

  Recompute recompute() const { return recompute_; }
  void set_recompute(Recompute recompute) { recompute_ = recompute; }
  // Off: training steps on an accelerator are issued one kernel at a time instead of being recorded
  // once and replayed. The results are the same bits.
  bool graphs() const { return graphs_ && profiler_.keeps_graphs(); }
  void set_graphs(bool graphs) { graphs_ = graphs; }
  // Whether GELU and its derivative are taken into the products beside them where the backend's
  // products have epilogues: other roundings, and Recompute::selective repeats a product.
  bool product_epilogues() const { return product_epilogues_; }
  void set_product_epilogues(bool epilogues) { product_epilogues_ = epilogues; }

  void launch(int kernel, const char* op, const void* params) const {
    backend_->launch(kernel, op, params);
  }

 private:
  friend class TapeScope;
  std::shared_ptr<Backend> backend_;
  Tape root_tape_;
  Tape* tape_ = &root_tape_;
  bool grad_enabled_ = true;
  bool fused_ = true;
  bool graphs_ = true;
  Recompute recompute_ = Recompute::none;
  bool product_epilogues_ = false;
  mutable Tensor ones_[kDTypeCount];
  Profiler profiler_;
  Profiler* looking_on_ = nullptr;
};

// Around what an op does forward; with its inputs, for profiles.
class OpRange : public ProfileRange {
 public:
  template <class... Tensors>
  OpRange(const Context& context, const char* op, const Tensors&... inputs)
      : ProfileRange(context.profiler(), op, TraceKind::forward, true) {
    if (profiler_) [[unlikely]]
      (add(inputs), ...);
  }

 private:
  void add(const Tensor& tensor) {
    if (tensor.defined()) profiler_->add_input(token_, tensor.shape(), tensor.dtype());
  }
  void add(std::span<const Tensor> tensors) {
    for (const Tensor& tensor : tensors) add(tensor);
  }
};

// Around what changes parameters.
class UpdateRange : public ProfileRange {
 public:
  UpdateRange(const Context& context, const char* name)
      : ProfileRange(context.profiler(), name, TraceKind::update, true) {}
};

// A phase of a training step, or of what is done between steps. on_device: it issues work.
class PhaseRange : public ProfileRange {
 public:
  PhaseRange(const Context& context, const char* name, bool on_device)
      : ProfileRange(context.profiler(), name, TraceKind::phase, on_device) {}
};

// Nothing is recorded while one of these lives.
class NoGrad {
 public:
  explicit NoGrad(Context& context) : context_(context), previous_(context.recording()) {
    context.set_recording(false);
  }
  ~NoGrad() { context_.set_recording(previous_); }
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  Context& context_;
  bool previous_;
};

// Sets the policy while it lives.
class RecomputeScope {
 public:
  RecomputeScope(Context& context, Recompute recompute)
      : context_(context), previous_(context.recompute()) {
    context.set_recompute(recompute);
  }
  ~RecomputeScope() { context_.set_recompute(previous_); }
  RecomputeScope(const RecomputeScope&) = delete;
  RecomputeScope& operator=(const RecomputeScope&) = delete;

 private:
  Context& context_;
  Recompute previous_;
};

// Runs on a tape of its own; checkpointed regions are recomputed on one.
class TapeScope {
 public:
  explicit TapeScope(Context& context)
      : context_(context), previous_(context.tape_), recording_(context.grad_enabled_) {
    context.tape_ = &tape_;
    context.grad_enabled_ = true;
  }
  ~TapeScope() {
    context_.tape_ = previous_;
    context_.grad_enabled_ = recording_;
  }
  TapeScope(const TapeScope&) = delete;
  TapeScope& operator=(const TapeScope&) = delete;

 private:
  Context& context_;
  Tape tape_;
  Tape* previous_;
  bool recording_;
};

// A tensor that a backward function needs, kept or computed again, as its variable says.
class SavedTensor {
 public:
  SavedTensor() = default;
  explicit SavedTensor(const Tensor& tensor) {
    if (tensor.variable() && tensor.variable()->again)
      again_ = tensor.variable()->again;
    else
      tensor_ = tensor.detach();
  }
  Tensor get(Context& context) const { return again_ ? again_(context) : tensor_; }

 private:
  Tensor tensor_;
  std::function<Tensor(Context&)> again_;
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
