// What the front doors of ops over rows share: checks of their inputs, and gradient buffers.
#pragma once

#include "engine/autograd/context.h"

namespace trafo {

// A defined tensor of a compute dtype on the context's device.
inline void check_compute_tensor(const Context& context, const char* op, const char* name,
                                 const Tensor& tensor) {
  require(tensor.defined(), ErrorCode::invalid_argument, op, name, " is undefined");
  require(tensor.device() == context.device(), ErrorCode::invalid_argument, op, name, " is on ",
          device_name(tensor.device()), ", the context computes on ",
          device_name(context.device()));
  require(tensor.dtype() != DType::bf16, ErrorCode::dtype_mismatch, op, name,
          ": cast to float32 first: bfloat16 is a storage type on the CPU");
  require(is_compute(tensor.dtype()), ErrorCode::dtype_mismatch, op, name,
          " must be float32 or float64, it is ", dtype_name(tensor.dtype()));
}

// The last dimension of x [.., C], at least 1.
inline int64_t check_row_tensor(const Context& context, const char* op, const char* name,
                                const Tensor& x) {
  check_compute_tensor(context, op, name, x);
  require(x.rank() >= 1 && x.dim(-1) >= 1, ErrorCode::shape_mismatch, op, name,
          " must have a last dimension of at least 1, its shape is ", x.shape().str());
  return x.dim(-1);
}

inline void check_same_dtype(const char* op, const char* name, const Tensor& tensor,
                             const Tensor& x) {
  require(tensor.dtype() == x.dtype(), ErrorCode::dtype_mismatch, op, name, " is ",
          dtype_name(tensor.dtype()), ", x is ", dtype_name(x.dtype()), "; they must agree");
}

// A parameter [C] that goes with x [.., C].
inline void check_row_vector(const Context& context, const char* op, const char* name,
                             const Tensor& vector, const Tensor& x) {
  check_compute_tensor(context, op, name, vector);
  check_same_dtype(op, name, vector, x);
  require(vector.rank() == 1 && vector.dim(0) == x.dim(-1), ErrorCode::shape_mismatch, op, name,
          " must be [", x.dim(-1), "], the width of x ", x.shape().str(), ", it is ",
          vector.shape().str());
}

inline void check_epsilon(const char* op, double epsilon) {
  require(epsilon > 0 && epsilon < 1, ErrorCode::invalid_argument, op,
          "epsilon must lie between 0 and 1, got ", epsilon);
}

// True if both inputs of an op are one tensor for autodiff, so that their gradients meet in one
// buffer.
inline bool same_variable(const Tensor& a, const Tensor& b) {
  return a.defined() && b.defined() && a.variable() && a.variable() == b.variable();
}

// Where a kernel puts the gradient of one input of several. An input that appeared before among the
// op's inputs gets a buffer of its own, which finish() adds: two outputs of one kernel must not be
// one memory.
class GradSlot {
 public:
  GradSlot(Backward& backward, size_t input, bool repeated, const Shape& shape, DType dtype)
      : input_(input), repeated_(repeated) {
    if (!backward.needs(input)) return;
    if (repeated)
      target_ = {backward.context().empty(shape, dtype), false};
    else
      target_ = backward.target(input);
  }

  void* data() const { return target_.buffer.defined() ? target_.buffer.raw() : nullptr; }
  bool wanted() const { return target_.buffer.defined(); }
  bool accumulate() const { return target_.accumulate; }
  const Tensor& buffer() const { return target_.buffer; }

  // After the kernel: lets go of the buffer. Slots that are not repeated first.
  void finish(Backward& backward) {
    if (repeated_ && wanted()) backward.add(input_, target_.buffer);
    target_ = {};
  }

 private:
  size_t input_;
  bool repeated_;
  GradTarget target_;
};

}  // namespace trafo
