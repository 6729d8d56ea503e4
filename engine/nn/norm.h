// Layer norm or RMS norm, alone or fused with the residual connection before it.
#pragma once

#include <functional>
#include <string>

#include "engine/core/numeric/philox.h"
#include "engine/nn/linear.h"
#include "engine/nn/parameter_store.h"
#include "engine/nn/stack_spec.h"

namespace trafo::nn {

class Norm {
 public:
  Norm() = default;
  // Declares `prefix`.weight [width] and, for layer norm with a bias, `prefix`.bias [width].
  Norm(ParameterStore& store, const std::string& prefix, const NormSpec& spec, int64_t width,
       const Place& place = {}, Role role = Role::norm);

  bool defined() const { return store_ != nullptr; }

  // Whether fused_add() of such a norm adds the bias of a linear layer.
  static bool adds_bias(const NormSpec& spec);

  // x [T, width] -> [T, width]
  Tensor forward(Context& context, const Tensor& x) const;

  struct Sum {
    Tensor sum;     // residual + dropout(x + bias), [T, width]
    Tensor normed;  // the norm of `sum`
    // Computes `normed` from `sum` once more; null where nothing may ask for it
    // (Recompute::full only).
    std::function<Tensor(Context&)> recompute;
  };
  // Fused bias + dropout + residual + norm. An RMS norm takes no bias.
  Sum fused_add(Context& context, const PendingBias& x, const Tensor& residual,
                const Dropout& dropout) const;

 private:
  // Zeros for a layer norm without a bias.
  Tensor bias(Context& context) const;

  const ParameterStore* store_ = nullptr;
  trafo::Norm kind_ = trafo::Norm::layer;
  ParamId gamma_ = kNoParam, beta_ = kNoParam;
  double epsilon_ = 0;
};

}  // namespace trafo::nn
