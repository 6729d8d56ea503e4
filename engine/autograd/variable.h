// The gradient side of a tensor.
#pragma once

#include <functional>

#include "engine/core/tensor.h"

namespace trafo {

class Context;

// Gradients have the shape of their tensor and are contiguous. Their dtype is that of their tensor,
// except that bf16 leaves get float32 where bf16 is computed with (accelerators) or a float32
// buffer was bound: what many kernels add to needs the digits. A leaf (parameter, input) keeps its
// gradient until it is read or zeroed; the gradient of anything else lives until the node that made
// it has run.
struct Variable {
  Shape shape;
  DType dtype = DType::f32;
  DType grad_dtype = DType::f32;
  Device device;
  bool leaf = true;
  bool consumed = false;  // its graph has been walked; using the tensor in a new graph is an error
  Tensor grad;            // undefined, or a buffer; a leaf's may be a view of a flat workspace
  bool bound = false;     // `grad` is a buffer given by bind_grad
  bool written = false;   // false: `grad` holds nothing yet and the next gradient overwrites it
  // Computes the tensor's value once more, bit for bit, from what backward keeps anyway; null where
  // that is not possible or not wanted (Context::recompute).
  std::function<Tensor(Context&)> recompute;
  bool unit = false;  // `grad` is the one that backward started with: known without reading it
};

}  // namespace trafo
