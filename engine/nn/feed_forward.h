// The feed-forward sublayer: activation(x U + b) D, or SwiGLU and GEGLU, (activation(x G) * x U) D
// (Shazeer, arXiv 2002.05202).
#pragma once

#include <string>

#include "engine/core/numeric/philox.h"
#include "engine/nn/linear.h"
#include "engine/nn/stack_spec.h"

namespace trafo::nn {

class FeedForward {
 public:
  FeedForward() = default;
  // Declares `prefix`.up [ffn_width, width], or `prefix`.gate_up [2 ffn_width, width] with the gate
  // on top, and `prefix`.down [width, ffn_width]. `set` is the layer's set of parameters.
  FeedForward(ParameterStore& store, const std::string& prefix, const StackSpec& spec, int64_t set,
              const Place& place = {});

  // x [T, width]; dropout acts after the activation.
  PendingBias forward(Context& context, const Tensor& x, const Dropout& dropout) const;

 private:
  Linear up_, down_;
  bool gated_ = false;
  Activation activation_ = Activation::relu;
};

}  // namespace trafo::nn
