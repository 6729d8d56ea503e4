// Checks that the public op functions share. Each message starts with the op and names the
// argument.
#pragma once

#include <string_view>

#include "engine/core/shape_text.h"
#include "engine/runtime/context.h"

namespace trafo {

// INVALID_ARGUMENT unless `tensor` is defined and on the context's device.
inline void check_input(const Context& context, std::string_view op, const char* name,
                        const Tensor& tensor) {
  require(tensor.defined(), ErrorCode::invalid_argument, op, name, " is undefined");
  require(tensor.device() == context.device(), ErrorCode::invalid_argument, op, name, " is on ",
          tensor.device(), ", the context works on ", context.device());
}

// True if the kernels of a device take the dtype: float32 everywhere, float64 on the CPU, bfloat16
// elsewhere.
inline bool computes_with(Device device, DType dtype) {
  return dtype == DType::f32 ||
         dtype == (device.kind == DeviceKind::cpu ? DType::f64 : DType::bf16);
}

// check_input, and DTYPE_MISMATCH unless the dtype is one that the device computes with.
inline void check_compute_input(const Context& context, std::string_view op, const char* name,
                                const Tensor& tensor) {
  check_input(context, op, name, tensor);
  const DType dtype = tensor.dtype();
  if (computes_with(context.device(), dtype)) [[likely]]
    return;
  require(dtype != DType::bf16, ErrorCode::dtype_mismatch, op, name,
          " is bfloat16: cast to float32 first: bfloat16 is a storage type on the CPU");
  require(dtype != DType::f64, ErrorCode::dtype_mismatch, op, name,
          " is float64: float64 is for gradient checks on the CPU, ", context.device(),
          " computes with float32 and bfloat16");
  fail(ErrorCode::dtype_mismatch, op, name, " must be float32 or ",
       context.device().kind == DeviceKind::cpu ? "float64" : "bfloat16", ", it is ",
       dtype_name(dtype));
}

inline void check_same_dtype(std::string_view op, const char* name_a, const Tensor& a,
                             const char* name_b, const Tensor& b) {
  require(a.dtype() == b.dtype(), ErrorCode::dtype_mismatch, op, name_a, " is ",
          dtype_name(a.dtype()), ", ", name_b, " is ", dtype_name(b.dtype()), ": cast one of them");
}

// `dim` in [-rank, rank) to [0, rank).
inline int checked_dim(std::string_view op, int dim, int rank) {
  require(dim >= -rank && dim < rank, ErrorCode::invalid_argument, op, "dimension ", dim,
          " is not one of a tensor of rank ", rank);
  return dim < 0 ? dim + rank : dim;
}

}  // namespace trafo
