// Elementwise add, subtract, multiply, divide and select with NumPy broadcasting.
//
// Backward: the usual products, summed over broadcast dimensions in a fixed order.
#pragma once

#include "engine/runtime/context.h"

namespace trafo {

enum class BinaryKind : int32_t { add = 0, subtract = 1, multiply = 2, divide = 3, select = 4 };

// out = a op b over `shape`; a broadcast dimension has stride 0. dtype f32 or f64.
struct BinaryForwardParams {
  DType dtype;
  BinaryKind kind;
  int32_t rank;
  int64_t shape[kMaxRank];
  int64_t a_strides[kMaxRank];
  int64_t b_strides[kMaxRank];
  const void* a;
  const void* b;
  void* out;  // contiguous
};

// Gradients before the broadcast sum, both contiguous over `shape`; null where not wanted.
struct BinaryBackwardParams {
  DType dtype;
  BinaryKind kind;
  int32_t rank;
  int64_t shape[kMaxRank];
  int64_t a_strides[kMaxRank];
  int64_t b_strides[kMaxRank];
  const void* a;
  const void* b;
  const void* dout;
  void* da;
  void* db;
};

namespace ops {

Tensor add(Context& context, const Tensor& a, const Tensor& b);
Tensor subtract(Context& context, const Tensor& a, const Tensor& b);
Tensor multiply(Context& context, const Tensor& a, const Tensor& b);
Tensor divide(Context& context, const Tensor& a, const Tensor& b);
// a where `mask` is not 0, else 0, of one dtype. The mask is a constant to autodiff. Where it is 0,
// neither the value nor the gradient depends on a: a product would make NaN of an infinite one.
Tensor select(Context& context, const Tensor& a, const Tensor& mask);

}  // namespace ops
}  // namespace trafo
