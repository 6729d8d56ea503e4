// The gradient of a tensor and its state.
#pragma once

#include <functional>

#include "engine/core/tensor.h"

namespace trafo {

class Context;

// A gradient is contiguous and has the shape and dtype of its tensor. The exception are bf16 leaves
// on accelerators and those with a bound float32 buffer: many kernels add to their gradient, so it
// is float32. A leaf (parameter, input) keeps its gradient until zero_grad. The gradient of an
// intermediate is freed when the node that produced the tensor has run.
struct Variable {
  Shape shape;
  DType dtype = DType::f32;
  DType grad_dtype = DType::f32;
  Device device;
  bool leaf = true;
  bool consumed = false;  // backward has run; using the tensor in a new graph is an error
  Tensor grad;            // may be undefined; a leaf's may be a view of the flat workspace
  bool bound = false;     // `grad` is a buffer given by bind_grad
  bool written = false;   // false: the next gradient overwrites `grad`
  // The recompute function: computes the tensor again, bit for bit, from what backward keeps
  // anyway. Null if that is impossible or turned off (Context::recompute).
  std::function<Tensor(Context&)> recompute;
  bool unit = false;  // `grad` is the constant one with which backward started
};

}  // namespace trafo
