// Runs of a model on a sample of data that show what its linear layers multiply.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "engine/core/cancel.h"
#include "engine/data/tokenized_corpus.h"
#include "engine/models/model.h"

namespace trafo {

inline constexpr int64_t kCalibrationTokens = 1 << 16;

// The sum of x x^T over the inputs of each layer. Layers with the same input, for example layers
// with tied matrices, each have their own.
class InputProducts : public LinearObserver {
 public:
  // wanted: of each parameter, whether its inputs count.
  explicit InputProducts(const std::vector<bool>& wanted) : wanted_(wanted) {}
  void observe(Context& context, int32_t parameter, const Tensor& x) override;
  // [columns, columns]; zeros where the layer has multiplied nothing.
  std::vector<double> take(int32_t parameter, int64_t columns);

 private:
  const std::vector<bool>& wanted_;
  std::map<int32_t, std::vector<double>> sums_;
};

// INVALID_ARGUMENT: no pair, or pairs that were prepared for another architecture.
void check_calibration(const TokenizedCorpus& pairs, const ModelSpec& spec,
                       std::string_view origin);

// Tells `observer` what every linear layer multiplies in forward passes over the pairs, without
// dropout, until kCalibrationTokens target tokens were read or all pairs. start_id: what the
// decoder begins with. The model computes in float, and is as before at the end. CANCELLED.
void observe_calibration(Context& context, Model& model, const TokenizedCorpus& pairs,
                         int32_t start_id, LinearObserver& observer,
                         const CancelToken* cancel = nullptr);

}  // namespace trafo
