#include "engine/autograd/tape.h"
#include "engine/core/shape_text.h"
#include "engine/core/status.h"

namespace trafo {

void set_requires_grad(Tensor& tensor, bool requires_grad) {
  if (!requires_grad) {
    tensor.set_variable(nullptr);
    return;
  }
  require(is_floating(tensor.dtype()), ErrorCode::dtype_mismatch, "set_requires_grad",
          "only floating-point tensors have gradients, this one is ", dtype_name(tensor.dtype()));
  if (tensor.variable()) {
    require(tensor.variable()->leaf, ErrorCode::invalid_argument, "set_requires_grad",
            "the tensor is the result of an op; detach it first");
    return;
  }
  auto variable = std::make_shared<Variable>();
  variable->shape = tensor.shape();
  variable->dtype = tensor.dtype();
  const bool on_cpu = tensor.device().kind == DeviceKind::cpu;
  variable->grad_dtype = on_cpu ? tensor.dtype() : stat_dtype(tensor.dtype());
  variable->device = tensor.device();
  tensor.set_variable(std::move(variable));
}

Tensor grad_of(const Tensor& tensor) {
  if (!requires_grad(tensor) || !tensor.variable()->written) return {};
  return tensor.variable()->grad;
}

void zero_grad(const Tensor& tensor) {
  if (!requires_grad(tensor)) return;
  Variable& variable = *tensor.variable();
  variable.written = variable.unit = false;
  if (!variable.bound)
    variable.grad = {};  // the caller may hold a handle, whose contents must not change
}

GradTarget claim_grad(const Tensor& tensor, DType dtype) {
  if (!requires_grad(tensor)) return {};
  Variable& variable = *tensor.variable();
  if (!variable.leaf || !variable.bound || variable.grad_dtype != dtype) return {};
  const bool add = variable.written;
  variable.written = true;
  variable.unit = false;
  return {variable.grad, add};
}

void keep_grad(const Tensor& tensor) {
  require(requires_grad(tensor) && tensor.variable()->bound, ErrorCode::invalid_argument,
          "keep_grad", "the tensor has no bound gradient");
  tensor.variable()->written = true;
}

void bind_grad(const Tensor& tensor, const Tensor& buffer) {
  require(requires_grad(tensor) && tensor.variable()->leaf, ErrorCode::invalid_argument,
          "bind_grad", "the tensor is not a leaf that wants a gradient");
  Variable& variable = *tensor.variable();
  require(buffer.shape() == variable.shape && buffer.is_contiguous() &&
              (buffer.dtype() == variable.dtype || buffer.dtype() == stat_dtype(variable.dtype)),
          ErrorCode::shape_mismatch, "bind_grad", "the buffer must be contiguous, ", variable.shape,
          " of ", dtype_name(variable.grad_dtype));
  variable.grad_dtype = buffer.dtype();
  variable.grad = buffer;
  variable.bound = true;
  variable.written = variable.unit = false;
}

}  // namespace trafo
