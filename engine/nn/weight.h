// The weight of a linear layer or an embedding, [rows, columns].
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/ops/low_rank_linear/low_rank_linear.h"
#include "engine/runtime/context.h"

namespace trafo {

class Int4Panels;
class Int8Matrix;

// Sees what linear layers multiply with: calibration of a quantized model.
class LinearObserver {
 public:
  virtual ~LinearObserver() = default;
  // x [T, columns] is about to be multiplied with the parameter (its number in the store).
  virtual void observe(Context& context, int32_t parameter, const Tensor& x) = 0;
};

// Values, int8 codes or the codes of a frozen matrix. With `inner`, this is the outer factor of a
// matrix U V.
struct Weight {
  Tensor values;
  std::shared_ptr<const Int8Matrix> int8;              // of a model with int8 weights
  std::shared_ptr<const Int4Panels> int4 = nullptr;    // of the same, a matrix with int4 codes
  std::shared_ptr<const CodedMatrix> coded = nullptr;  // of a model with a base_precision
  std::optional<LowRankUpdate> update = {};
  // Of quantization-aware training: x is rounded to int8 codes of its rows, as int8_linear does.
  bool quantizes_input = false;
  LinearObserver* observer = nullptr;
  int32_t parameter = -1;                         // what the observer is told
  std::shared_ptr<const Weight> inner = nullptr;  // V: x is multiplied with it first

  // Whether x W^T with these values is the whole product.
  bool is_dense() const {
    return !int8 && !int4 && !coded && !update && !quantizes_input && !observer && !inner;
  }
};

namespace nn {

// During its lifetime, linear layers leave low-rank updates out on this thread: a model with an
// adapter computes what it does without it.
class NoLowRank {
 public:
  NoLowRank() : previous_(active_) { active_ = true; }
  ~NoLowRank() { active_ = previous_; }
  NoLowRank(const NoLowRank&) = delete;
  NoLowRank& operator=(const NoLowRank&) = delete;
  static bool active() { return active_; }

 private:
  static thread_local bool active_;
  bool previous_;
};

// The input that a linear layer with this weight multiplies in place of x [T, columns]: x itself,
// or x rounded to int8 codes (ops/fake_quant_rows). Tells the observer.
Tensor linear_input(Context& context, const Tensor& x, const Weight& weight);
// x W^T + bias: x [T, columns], bias [rows] or undefined -> [T, rows]. With an inner factor V it is
// (x V^T) W^T + bias.
Tensor linear(Context& context, const Tensor& x, const Weight& weight, const Tensor& bias = {});
// The rows `index` of a weight without an update and an inner factor.
Weight gather_rows(Context& context, const Weight& weight, std::span<const int32_t> index);

}  // namespace nn
}  // namespace trafo
