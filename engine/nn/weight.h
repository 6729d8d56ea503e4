// The weight of a linear layer or an embedding, [rows, columns].
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/ops/low_rank_add/low_rank_add.h"
#include "engine/runtime/context.h"

namespace trafo {

class Int8Matrix;

// What an adapter adds to x W^T: scale (x down^T) up^T in ranges of columns (ops/low_rank_add).
struct LowRankUpdate {
  Tensor down;  // [ranges * r, columns of W]: LoRA's A of each range
  Tensor up;    // [columns of all ranges, r]: LoRA's B of each range
  double scale = 1;
  std::shared_ptr<const std::vector<ColumnRange>> ranges;
};

// Either values or int8 codes.
struct Weight {
  Tensor values;
  std::shared_ptr<const Int8Matrix> int8;  // of a model with int8 weights
  std::optional<LowRankUpdate> update = {};

  // Whether x W^T is the whole product.
  bool is_dense() const { return !int8 && !update; }
};

namespace nn {

// x W^T + bias: x [T, columns], bias [rows] or undefined -> [T, rows].
Tensor linear(Context& context, const Tensor& x, const Weight& weight, const Tensor& bias = {});
// The rows `index` of a weight without an update.
Weight gather_rows(Context& context, const Weight& weight, std::span<const int32_t> index);

}  // namespace nn
}  // namespace trafo
