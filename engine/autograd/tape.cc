#include <algorithm>
#include <atomic>

#include "engine/autograd/gradient_observer.h"
#include "engine/core/shape_text.h"
#include "engine/runtime/context.h"
#include "engine/runtime/side_work.h"

namespace trafo {
namespace {

std::atomic<const GradientKernels*> gradient_kernels{nullptr};

const GradientKernels& kernels() {
  const GradientKernels* set = gradient_kernels.load(std::memory_order_acquire);
  require(set != nullptr, ErrorCode::internal, "backward", "no gradient kernels are registered");
  return *set;
}

void copy_into(Context& context, const Tensor& target, const Tensor& source) {
  if (target.dtype() != source.dtype())
    kernels().convert(context, target, source);
  else if (target.raw() != source.raw())
    context.backend().copy(target.raw(), source.raw(), source.bytes());
}

void accumulate(Context& context, const Tensor& target, const Tensor& source) {
  Tensor addend = source;
  if (target.dtype() != source.dtype()) {
    addend = context.empty(source.shape(), target.dtype());
    copy_into(context, addend, source);
  }
  kernels().accumulate(context, target, addend);
}

// A bound gradient is a part of a workspace, which has one version for all gradients: a gradient
// that was taken from it is not followed.
void mark_written(const Variable& variable) {
  if (!variable.bound) variable.grad.mark_written();
}

// A gradient that shares memory with another tensor must not be added to in place.
void make_exclusive(Context& context, Variable& variable) {
  if (variable.leaf || !variable.grad.is_shared()) return;
  Tensor copy = context.empty(variable.shape, variable.grad_dtype);
  copy_into(context, copy, variable.grad);
  variable.grad = copy;
}

// The profile range of an op's backward, with the inputs of its forward.
class BackwardRange : public ProfileRange {
 public:
  BackwardRange(const Context& context, const char* op,
                const std::vector<std::shared_ptr<Variable>>& inputs)
      : ProfileRange(context.profiler(), op, TraceKind::backward, true) {
    if (!profiler_) [[likely]]
      return;
    for (const auto& input : inputs)
      if (input) profiler_->add_input(token_, input->shape, input->dtype);
  }
};

// Releases what the outputs of a node hold. The node has run or never will.
void consume(const std::vector<std::shared_ptr<Variable>>& outputs) {
  for (const auto& output : outputs) {
    if (!output) continue;
    output->consumed = true;
    output->grad = {};
    output->recompute = nullptr;  // it keeps the inputs of the op alive
    output->written = output->unit = false;
  }
}

}  // namespace

void set_gradient_kernels(const GradientKernels* set) {
  gradient_kernels.store(set, std::memory_order_release);
}

bool Backward::has_grad_output(size_t output) const {
  const auto& variable = outputs_[output];
  return variable && variable->written;
}

Tensor Backward::grad_output(size_t output) const {
  const auto& variable = outputs_[output];
  if (variable->written) return variable->grad;
  return context_.zeros(variable->shape, variable->grad_dtype);
}

bool Backward::unit_grad_output(size_t output) const {
  const auto& variable = outputs_[output];
  return variable->written && variable->unit;
}

GradTarget Backward::target(size_t input) {
  return target(input, inputs_[input]->dtype);
}

GradTarget Backward::target(size_t input, DType dtype) {
  Variable& variable = *inputs_[input];
  if (dtype != variable.grad_dtype) {
    Tensor aside = context_.empty(variable.shape, dtype);
    deferred_.emplace_back(&variable, aside);
    return {aside, false};
  }
  if (std::count(inputs_.begin(), inputs_.end(), inputs_[input]) > 1) {
    if (std::find(handed_out_.begin(), handed_out_.end(), &variable) != handed_out_.end()) {
      Tensor aside = context_.empty(variable.shape, dtype);
      deferred_.emplace_back(&variable, aside);
      return {aside, false};
    }
    handed_out_.push_back(&variable);
  }
  if (variable.bound) SideWork::settle(context_, variable.grad);
  if (!variable.grad.defined()) variable.grad = context_.empty(variable.shape, dtype);
  if (variable.written) make_exclusive(context_, variable);
  const bool add = variable.written;
  mark_written(variable);
  variable.written = true;
  variable.unit = false;
  return {variable.grad, add};
}

void Backward::add(size_t input, const Tensor& grad) {
  if (!needs(input)) return;
  Variable& variable = *inputs_[input];
  require(grad.shape() == variable.shape && grad.is_contiguous() &&
              (grad.dtype() == variable.grad_dtype || stat_dtype(grad.dtype()) == DType::f32),
          ErrorCode::internal, "backward", "a gradient of shape ", grad.shape(),
          " arrived for a tensor of shape ", variable.shape);
  if (std::find(handed_out_.begin(), handed_out_.end(), &variable) != handed_out_.end())
    deferred_.emplace_back(&variable, grad);
  else
    add_to(variable, grad);
}

void Backward::add_to(Variable& variable, const Tensor& grad) {
  if (variable.bound) SideWork::settle(context_, variable.grad);
  if (variable.written) {
    make_exclusive(context_, variable);
    accumulate(context_, variable.grad, grad);
    mark_written(variable);
  } else if (variable.grad.defined()) {  // a bound buffer
    copy_into(context_, variable.grad, grad);
  } else if (grad.dtype() != variable.grad_dtype || (variable.leaf && grad.is_shared())) {
    // A leaf's gradient outlives backward and may be given to the caller, so it owns its memory.
    variable.grad = context_.empty(variable.shape, variable.grad_dtype);
    copy_into(context_, variable.grad, grad);
  } else {
    variable.grad = grad;
  }
  variable.written = true;
  variable.unit = false;
}

void Backward::finish() {
  for (auto& [variable, grad] : deferred_) add_to(*variable, grad);
}

void check_version(const char* op, const char* name, const Storage& storage, uint64_t version) {
  require(storage.version() == version, ErrorCode::invalid_argument, op, "backward of ", op,
          " needs ", name,
          ", whose memory was written to after the forward pass; write to it after ",
          "backward, or give the op a clone");
}

void Tape::record(const char* op, std::span<const Tensor> inputs, std::span<Tensor* const> outputs,
                  std::initializer_list<SavedValue> saved, BackwardFn backward) {
  require(backward != nullptr, ErrorCode::unsupported, op,
          "this op has no backward; detach its inputs or run it under no-grad");
  require(!is_walked_, ErrorCode::invalid_argument, op,
          "ops cannot be recorded by a backward function");
  Node node{op, {}, {}, saved_.size(), std::move(backward)};
  for (const Tensor& input : inputs) {
    if (!input.defined()) {
      node.inputs.push_back(nullptr);
      continue;
    }
    const auto& variable = input.variable();
    require(!variable || !variable->consumed, ErrorCode::invalid_argument, op,
            "an input comes from a graph whose backward has already run; detach it first");
    node.inputs.push_back(variable);
  }
  for (Tensor* output : outputs) {
    if (!output->defined() || !is_floating(output->dtype())) {
      node.outputs.push_back(nullptr);
      continue;
    }
    auto variable = std::make_shared<Variable>();
    variable->shape = output->shape();
    variable->dtype = variable->grad_dtype = output->dtype();
    variable->device = output->device();
    variable->leaf = false;
    output->set_variable(variable);
    node.outputs.push_back(std::move(variable));
  }
  nodes_.push_back(std::move(node));
  for (const SavedValue& value : saved)
    if (value.storage) saved_.push_back({value, value.storage->version()});
}

void Tape::backward(Context& context, std::span<const Tensor> roots,
                    std::span<const Tensor> upstream, bool unit) {
  // A function of the program, which a custom op calls, could do that.
  require(!is_walked_, ErrorCode::invalid_argument, "backward",
          "backward runs already, and calls this function");
  const NoGrad no_grad(context);
  struct Walk {
    Tape& tape;
    explicit Walk(Tape& walked) : tape(walked) { tape.is_walked_ = true; }
    ~Walk() {
      tape.is_walked_ = false;
      tape.clear();
    }
  } walk(*this);

  for (size_t i = 0; i < roots.size(); ++i) {
    if (!upstream[i].defined() || !requires_grad(roots[i])) continue;
    const std::vector<std::shared_ptr<Variable>> root{roots[i].variable()}, none;
    const Tensor seed = upstream[i];  // a second handle marks the caller's tensor as shared
    const bool first = !root[0]->written;
    Backward(context, root, none).add(0, seed);
    root[0]->unit = unit && first;
  }

  GradientObserver* const observer = context.step().observer;
  const StepScope inner(context, &StepContext::observer, nullptr);
  const auto for_each_leaf = [](const Node& node, auto visit) {
    for (const auto& input : node.inputs)
      if (input && input->leaf) visit(*input);
  };
  if (observer)
    for (const Node& node : nodes_)
      for_each_leaf(node, [&](const Variable& leaf) { observer->will_add(leaf); });

  while (!nodes_.empty()) {
    const Node& node = nodes_.back();
    bool reached = false;
    for (const auto& output : node.outputs) reached = reached || (output && output->written);
    if (reached) {
      const BackwardRange range(context, node.op, node.inputs);
      for (size_t i = node.first_saved; i < saved_.size(); ++i)
        check_version(node.op, saved_[i].value.name, *saved_[i].value.storage, saved_[i].version);
      Backward step(context, node.inputs, node.outputs);
      node.backward(step);
      step.finish();
    }
    if (observer) for_each_leaf(node, [&](const Variable& leaf) { observer->added(leaf); });
    consume(node.outputs);
    saved_.erase(saved_.begin() + static_cast<std::ptrdiff_t>(node.first_saved), saved_.end());
    nodes_.pop_back();
  }
}

void Tape::clear() {
  for (const Node& node : nodes_) consume(node.outputs);
  nodes_.clear();
  saved_.clear();
}

}  // namespace trafo
