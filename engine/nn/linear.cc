#include "engine/nn/linear.h"

#include <cmath>

namespace trafo::nn {

Linear::Linear(ParameterStore& store, const std::string& prefix, const LinearOptions& options)
    : store_(&store), defer_bias_(options.defer_bias) {
  Init init = Init::xavier_uniform(options.in, options.fan_out > 0 ? options.fan_out : options.out);
  if (options.depth > 0) init.scale /= std::sqrt(static_cast<double>(options.depth));
  if (options.stacked_layers > 1)
    init.layer_elements = options.out / options.stacked_layers * options.in;
  weight_ = store.declare_linear(prefix + ".weight", {options.out, options.in}, init);
  if (options.bias) bias_ = store.declare(prefix + ".bias", {options.out}, Init::zeros());
  if (options.parts.empty()) return;
  const ParamId inner = store.inner_factor(weight_);
  store.set_parts(weight_, Piece::weight, options.parts,
                  inner == kNoParam ? options.column_units : 0);
  if (bias_ != kNoParam) store.set_parts(bias_, Piece::bias, options.parts);
  if (inner == kNoParam) return;
  const Part& first = options.parts.front();
  store.set_parts(inner, Piece::inner_factor, {{first.role, first.place, store.shape(inner)[0]}},
                  options.column_units);
}

Tensor Linear::forward(Context& context, const Tensor& x) const {
  return linear(context, x, weight(), bias());
}

PendingBias Linear::forward_pending_bias(Context& context, const Tensor& x) const {
  if (!defer_bias_) return {forward(context, x), {}};
  return {linear(context, x, weight()), bias()};
}

}  // namespace trafo::nn
