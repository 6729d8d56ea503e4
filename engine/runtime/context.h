// A Context holds a device, a tape and the switches that ops obey. Only one thread may use it at a
// time, but it may move between threads.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/autograd/tape.h"
#include "engine/backend/backend.h"
#include "engine/core/tensor.h"
#include "engine/runtime/profiler.h"
#include "engine/runtime/step_context.h"

namespace trafo {

class Context {
 public:
  explicit Context(std::shared_ptr<Backend> backend)
      : backend_(std::move(backend)), profiler_(*backend_) {
    profiler_.look_for_tools();
    if (profiler_.annotates()) active_profiler_ = &profiler_;
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  Backend& backend() const { return *backend_; }
  Device device() const { return backend_->device(); }

  // --- tensors ---
  Tensor empty(const Shape& shape, DType dtype) const;  // contents unspecified
  Tensor zeros(const Shape& shape, DType dtype) const;
  // Copies from host memory; `bytes` must be exactly the tensor's size.
  Tensor from_host(const void* host, size_t bytes, const Shape& shape, DType dtype) const;
  template <class T>
  Tensor from_values(std::span<const T> values, const Shape& shape) const {
    return from_host(values.data(), values.size_bytes(), shape, dtype_of<T>);
  }
  Tensor scalar(double value, const Shape& shape, DType dtype) const;  // `shape` has one element
  // The constant one, [1]. Copied to the device by the first call only.
  const Tensor& one(DType dtype) const;
  // Rounds to `dtype`, a floating-point one.
  Tensor from_doubles(std::span<const double> values, const Shape& shape, DType dtype) const;
  // Copies a contiguous tensor to the host; waits for the device.
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
  bool recording() const { return step_.recording; }
  void set_recording(bool enabled) { step_.recording = enabled; }
  // True if an op on these inputs will be recorded, so that it must keep what its backward needs.
  bool needs_grad(std::initializer_list<Tensor> inputs) const;
  // Records an op and gives `outputs` their Variables. `saved`: the inputs and outputs whose values
  // the backward function reads. A null `backward` is UNSUPPORTED if a gradient is required.
  void record(const char* op, std::initializer_list<Tensor> inputs,
              std::initializer_list<Tensor*> outputs, std::initializer_list<SavedValue> saved,
              BackwardFn backward);
  void record(const char* op, std::span<const Tensor> inputs, std::span<Tensor* const> outputs,
              std::initializer_list<SavedValue> saved, BackwardFn backward);
  // Adds to the gradients of all leaves that `root` depends on and frees the graph. `upstream` is
  // the gradient of `root`: contiguous, of its shape and dtype. The default is one, for a root of
  // one element only.
  void backward(const Tensor& root, const Tensor& upstream = {});
  Tape& tape() { return *step_.tape; }

  // --- profiles ---
  // Null unless a profile is recorded or a tool is attached. An op tests only this pointer.
  Profiler* profiler() const { return active_profiler_; }
  // See Profiler::start. Never changes a result.
  void start_profile(bool graphs = false) {
    profiler_.start(graphs);
    active_profiler_ = &profiler_;
  }
  bool profiling() const { return profiler_.recording(); }
  Trace finish_profile();

  // --- switches ---
  bool fused_kernels() const { return fused_; }  // off: every op runs its reference path
  void set_fused_kernels(bool fused) { fused_ = fused; }

  Recompute recompute() const { return step_.recompute; }
  const StepContext& step() const { return step_; }
  // Off: training steps on an accelerator launch kernel by kernel instead of replaying a captured
  // graph. The results are the same bits.
  bool graphs() const { return graphs_ && profiler_.keeps_graphs(); }
  void set_graphs(bool graphs) { graphs_ = graphs; }
  // Whether the activation of a feed-forward block and its derivative are part of the neighbouring
  // GEMMs where the backend supports it. The roundings do not differ.
  bool gemm_epilogues() const { return gemm_epilogues_; }
  void set_gemm_epilogues(bool epilogues) { gemm_epilogues_ = epilogues; }
  // Whether the gradient of a bias is summed up in the GEMM for its weight where the backend
  // supports it (Backend::sums_in_gemm). The order of the sums differs.
  bool bias_sums_in_gemms() const { return bias_sums_in_gemms_; }
  void set_bias_sums_in_gemms(bool in_gemms) { bias_sums_in_gemms_ = in_gemms; }

  void launch(int kernel, const char* op, const void* params) const {
    backend_->launch(kernel, op, params);
  }

 private:
  template <class>
  friend class StepScope;
  std::shared_ptr<Backend> backend_;
  Tape root_tape_;
  StepContext step_{.tape = &root_tape_};
  bool fused_ = true;
  bool graphs_ = true;
  bool gemm_epilogues_ = true;
  bool bias_sums_in_gemms_ = true;
  mutable Tensor ones_[kDTypeCount];
  Profiler profiler_;
  Profiler* active_profiler_ = nullptr;
};

// The profile range of an op's forward, with its inputs.
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

// The profile range of a change of parameters.
class UpdateRange : public ProfileRange {
 public:
  UpdateRange(const Context& context, const char* name)
      : ProfileRange(context.profiler(), name, TraceKind::update, true) {}
};

// The profile range of a phase of training. on_device: it issues work to the device.
class PhaseRange : public ProfileRange {
 public:
  PhaseRange(const Context& context, const char* name, bool on_device)
      : ProfileRange(context.profiler(), name, TraceKind::phase, on_device) {}
};

// Sets one field of Context::step() during its lifetime.
template <class T>
class StepScope {
 public:
  StepScope(Context& context, T StepContext::*field, std::type_identity_t<T> value)
      : context_(context), field_(field), previous_(std::exchange(context.step_.*field, value)) {}
  ~StepScope() { context_.step_.*field_ = previous_; }
  StepScope(const StepScope&) = delete;
  StepScope& operator=(const StepScope&) = delete;

 private:
  using Field = T StepContext::*;

  Context& context_;
  const Field field_;
  T previous_;
};

// Turns recording off during its lifetime.
class NoGrad : public StepScope<bool> {
 public:
  explicit NoGrad(Context& context) : StepScope(context, &StepContext::recording, false) {}
};

// Gives the context a separate tape that records during its lifetime, for example to recompute a
// checkpointed region.
class TapeScope {
 public:
  explicit TapeScope(Context& context)
      : in_use_(context, &StepContext::tape, &tape_),
        recording_(context, &StepContext::recording, true) {}

 private:
  Tape tape_;
  StepScope<Tape*> in_use_;
  StepScope<bool> recording_;
};

// A tensor that a backward function needs. It is kept, or recomputed if its Variable has a
// recompute function.
class SavedTensor {
 public:
  SavedTensor() = default;
  explicit SavedTensor(const Tensor& tensor) {
    if (tensor.variable() && tensor.variable()->recompute)
      recompute_ = tensor.variable()->recompute;
    else
      tensor_ = tensor.detach();
  }
  Tensor get(Context& context) const { return recompute_ ? recompute_(context) : tensor_; }
  bool is_kept() const { return tensor_.defined(); }

 private:
  Tensor tensor_;
  std::function<Tensor(Context&)> recompute_;
};

}  // namespace trafo
