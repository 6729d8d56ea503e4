// A linear layer: y = x W^T + b.
#pragma once

#include <string>
#include <vector>

#include "engine/nn/parameter_store.h"
#include "engine/nn/weight.h"

namespace trafo::nn {

struct LinearOptions {
  int64_t in = 0, out = 0;
  bool bias = true;
  // Whether forward_pending_bias() leaves the bias to what follows; an RMS norm adds none.
  bool defer_bias = true;
  // Outputs that the initial values are scaled for: a weight that joins several projections is
  // initialised like the separate ones. 0: `out`.
  int64_t fan_out = 0;
  // Depth-scaled initialisation (DS-Init, Zhang et al., arXiv 1908.11365, with alpha 1): above 0,
  // initial weights are divided by the square root of this depth. Layers count from 1.
  int64_t depth = 0;
  // Above 0: the weight stacks the projections of this many layers, the first layer's on top, and
  // each layer's part is scaled by its own depth.
  int64_t stacked_layers = 0;
  // The parts of the outputs, in order, and the units of the inputs (ParameterParts).
  std::vector<Part> parts = {};
  int64_t column_units = 0;
};

// The output of a Linear whose bias may not have been added yet. The fused add norm that follows
// adds the bias.
struct PendingBias {
  Tensor matmul;  // [T, out]
  Tensor bias;    // [out], or undefined if it is already added or the layer has no bias
};

class Linear {
 public:
  Linear() = default;
  // Declares `prefix`.weight [out, in], which may be int8 or two factors, and, with a bias,
  // `prefix`.bias [out].
  Linear(ParameterStore& store, const std::string& prefix, const LinearOptions& options);
  // Uses parameters that are declared already, such as a tied embedding; kNoParam: no bias.
  Linear(const ParameterStore& store, ParamId weight, ParamId bias)
      : store_(&store), weight_(weight), bias_(bias) {}

  // x [T, in] -> [T, out]
  Tensor forward(Context& context, const Tensor& x) const;
  PendingBias forward_pending_bias(Context& context, const Tensor& x) const;

  Weight weight() const { return store_->weight(weight_); }
  Tensor bias() const { return bias_ == kNoParam ? Tensor{} : store_->value(bias_); }

 private:
  const ParameterStore* store_ = nullptr;
  ParamId weight_ = kNoParam, bias_ = kNoParam;
  bool defer_bias_ = true;
};

}  // namespace trafo::nn
