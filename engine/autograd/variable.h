// The gradient side of a tensor.
#pragma once

#include "engine/core/tensor.h"

namespace trafo {

// Gradients have the shape and dtype of their tensor and are contiguous. A leaf (parameter, input)
// keeps its gradient until it is read or zeroed; the gradient of anything else lives until the node
// that made it has run.
struct Variable {
  Shape shape;
  DType dtype = DType::f32;
  Device device;
  bool leaf = true;
  bool consumed = false;  // its graph has been walked; using the tensor in a new graph is an error
  Tensor grad;            // undefined, or a buffer; a leaf's may be a view of a flat workspace
  bool bound = false;     // `grad` is a buffer given by bind_grad
  bool written = false;   // false: `grad` holds nothing yet and the next gradient overwrites it
};

}  // namespace trafo
