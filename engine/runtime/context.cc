#include "engine/runtime/context.h"

#include <algorithm>

#include "engine/autograd/leaf_watch.h"
#include "engine/core/shape_text.h"

namespace trafo {

Tensor Context::empty(const Shape& shape, DType dtype) const {
  const int64_t bytes =
      checked_mul(quick_element_count(shape), static_cast<int64_t>(dtype_size(dtype)), "tensor");
  const auto size = static_cast<size_t>(bytes);
  void* data = backend_->allocate(size);
  std::shared_ptr<Storage> storage;
  try {
    storage = std::make_shared<Storage>(backend_, device(), data, size);
  } catch (...) {
    if (data) backend_->release(data, size);
    throw;
  }
  return Tensor(std::move(storage), dtype, shape, contiguous_strides(shape), 0);
}

Tensor Context::zeros(const Shape& shape, DType dtype) const {
  Tensor tensor = empty(shape, dtype);
  backend_->fill_zero(tensor.raw(), tensor.bytes());
  return tensor;
}

Tensor Context::from_host(const void* host, size_t bytes, const Shape& shape, DType dtype) const {
  Tensor tensor = empty(shape, dtype);
  require(bytes == tensor.bytes(), ErrorCode::shape_mismatch, "tensor", "shape ", shape, " of ",
          dtype_name(dtype), " takes ", tensor.bytes(), " bytes, got ", bytes);
  backend_->copy_from_host(tensor.raw(), host, bytes);
  return tensor;
}

void Context::to_host(const Tensor& tensor, void* host, size_t bytes) const {
  require(tensor.is_contiguous(), ErrorCode::invalid_argument, "tensor",
          "only a contiguous tensor can be copied to the host");
  require(bytes == tensor.bytes(), ErrorCode::shape_mismatch, "tensor", "the tensor takes ",
          tensor.bytes(), " bytes, the buffer has ", bytes);
  backend_->copy_to_host(host, tensor.raw(), bytes);
}

Tensor Context::scalar(double value, const Shape& shape, DType dtype) const {
  const auto from = [&](auto of_dtype) {
    return from_host(&of_dtype, sizeof(of_dtype), shape, dtype);
  };
  switch (dtype) {  // a number that only other types can have is not converted
    case DType::f64:
      return from(value);
    case DType::f32:
      return from(static_cast<float>(value));
    case DType::bf16:
      return from(BFloat16::from_float(static_cast<float>(value)));
    default:
      return from(static_cast<int32_t>(value));
  }
}

const Tensor& Context::one(DType dtype) const {
  Tensor& one = ones_[static_cast<size_t>(dtype)];
  if (!one.defined()) one = scalar(1, {1}, dtype);
  return one;
}

Tensor Context::from_doubles(std::span<const double> values, const Shape& shape,
                             DType dtype) const {
  if (dtype == DType::f64) return from_values<double>(values, shape);
  const std::vector<float> narrow(values.begin(), values.end());
  if (dtype == DType::f32) return from_values<float>(narrow, shape);
  std::vector<BFloat16> rounded(narrow.size());
  std::transform(narrow.begin(), narrow.end(), rounded.begin(), &BFloat16::from_float);
  return from_values<BFloat16>(rounded, shape);
}

double Context::item(const Tensor& tensor) const {
  require(tensor.numel() == 1, ErrorCode::shape_mismatch, "item", "the tensor of shape ",
          tensor.shape(), " does not have one element");
  if (tensor.dtype() == DType::f64) return values<double>(tensor)[0];
  if (tensor.dtype() == DType::bf16) return values<BFloat16>(tensor)[0].to_float();
  return values<float>(tensor)[0];
}

bool Context::needs_grad(std::initializer_list<Tensor> inputs) const {
  LeafWatch* const leaves = step_.leaves;
  if (!step_.recording && !leaves) return false;
  bool wanted = false;
  for (const Tensor& input : inputs) {
    if (!requires_grad(input)) continue;
    if (!leaves) return true;
    leaves->note(input);
    wanted = step_.recording;
  }
  return wanted;
}

void Context::record(const char* op, std::initializer_list<Tensor> inputs,
                     std::initializer_list<Tensor*> outputs,
                     std::initializer_list<SavedValue> saved, BackwardFn backward) {
  record(op, std::span<const Tensor>(inputs.begin(), inputs.size()),
         std::span<Tensor* const>(outputs.begin(), outputs.size()), saved, std::move(backward));
}

void Context::record(const char* op, std::span<const Tensor> inputs,
                     std::span<Tensor* const> outputs, std::initializer_list<SavedValue> saved,
                     BackwardFn backward) {
  LeafWatch* const leaves = step_.leaves;
  if (!step_.recording && !leaves) return;
  bool wanted = false;
  for (const Tensor& input : inputs) {
    if (!requires_grad(input)) continue;
    wanted = true;
    if (leaves) leaves->note(input);
  }
  if (wanted && step_.recording) tape().record(op, inputs, outputs, saved, std::move(backward));
}

Trace Context::finish_profile() {
  struct LookAway {
    Context& context;
    ~LookAway() {
      if (!context.profiler_.annotates()) context.active_profiler_ = nullptr;
    }
  } look_away{*this};
  return profiler_.finish();
}

void Context::backward(const Tensor& root, const Tensor& upstream) {
  require(requires_grad(root), ErrorCode::invalid_argument, "backward",
          "the tensor does not depend on anything that wants a gradient");
  require(!root.variable()->consumed, ErrorCode::invalid_argument, "backward",
          "backward has already run over this graph");
  Tensor seed = upstream;
  const bool unit = !seed.defined();
  if (!unit) {
    require(seed.shape() == root.shape() && seed.dtype() == root.dtype(), ErrorCode::shape_mismatch,
            "backward", "the upstream gradient is ", seed.shape(), " ", dtype_name(seed.dtype()),
            ", the tensor ", root.shape(), " ", dtype_name(root.dtype()));
    require(seed.is_contiguous(), ErrorCode::invalid_argument, "backward",
            "the upstream gradient must be contiguous");
  } else {
    require(root.numel() == 1, ErrorCode::shape_mismatch, "backward", "a tensor of shape ",
            root.shape(), " needs an upstream gradient");
    seed = root.rank() == 1 ? one(root.dtype()) : one(root.dtype()).reshaped(root.shape());
  }
  tape().backward(*this, {&root, 1}, {&seed, 1}, unit);
}

}  // namespace trafo
