// Shared by the public functions of ops over rows: checks of their inputs, and gradient buffers.
#pragma once

#include "engine/ops/checks.h"

namespace trafo {

// The last dimension of x [.., C], at least 1.
inline int64_t check_row_tensor(const Context& context, const char* op, const char* name,
                                const Tensor& x) {
  check_compute_input(context, op, name, x);
  require(x.rank() >= 1 && x.dim(-1) >= 1, ErrorCode::shape_mismatch, op, name,
          " must have a last dimension of at least 1, its shape is ", x.shape());
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
  check_compute_input(context, op, name, vector);
  check_same_dtype(op, name, vector, x);
  require(vector.rank() == 1 && vector.dim(0) == x.dim(-1), ErrorCode::shape_mismatch, op, name,
          " must be [", x.dim(-1), "], the width of x ", x.shape(), ", it is ", vector.shape());
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

// The same for a parameter [C]: kernels write its gradient in float32 when x is bf16.
inline GradTarget vector_target_if_needed(Backward& backward, size_t input, const Tensor& x) {
  return backward.needs(input) ? backward.target(input, stat_dtype(x.dtype())) : GradTarget{};
}

}  // namespace trafo
