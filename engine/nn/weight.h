// The weight of a linear layer or an embedding, [rows, columns].
#pragma once

#include <memory>
#include <span>

#include "engine/runtime/context.h"

namespace trafo {

class Int8Matrix;

// One of the two is defined.
struct Weight {
  Tensor values;
  std::shared_ptr<const Int8Matrix> int8;  // of a model with int8 weights
};

namespace nn {

// x W^T + bias: x [T, columns], bias [rows] or undefined -> [T, rows].
Tensor linear(Context& context, const Tensor& x, const Weight& weight, const Tensor& bias = {});
// The rows `index` of a weight.
Weight gather_rows(Context& context, const Weight& weight, std::span<const int32_t> index);

}  // namespace nn
}  // namespace trafo
