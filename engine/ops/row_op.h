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

// Null for an undefined tensor.
inline void* raw_or_null(const Tensor& tensor) {
  return tensor.defined() ? tensor.raw() : nullptr;
}

// The target of an input whose gradient is wanted; otherwise one without a buffer.
inline GradTarget target_if_needed(Backward& backward, size_t input) {
  return backward.needs(input) ? backward.target(input) : GradTarget{};
}

}  // namespace trafo
