#include "engine/nn/feed_forward.h"

#include "engine/nn/fp8_weights.h"

#include "engine/nn/norm.h"
#include "engine/ops/bias_act_dropout/bias_act_dropout.h"
#include "engine/ops/dropout/dropout.h"
#include "engine/ops/feed_forward/feed_forward.h"
#include "engine/ops/swiglu/swiglu.h"

namespace trafo::nn {

FeedForward::FeedForward(ParameterStore& store, const std::string& prefix, const StackSpec& spec,
                         int64_t set, const Place& place)
    : gated_(spec.feed_forward.gated), activation_(spec.feed_forward.activation) {
  const int64_t width = spec.width, ffn_width = spec.feed_forward.width;
  std::vector<Part> inner{{Role::up, place, ffn_width, ffn_width}};
  if (gated_) inner.insert(inner.begin(), {Role::gate, place, ffn_width, ffn_width});
  up_ = Linear(store, prefix + (gated_ ? ".gate_up" : ".up"),
               {.in = width,
                .out = gated_ ? 2 * ffn_width : ffn_width,
                .bias = spec.feed_forward.bias,
                .fan_out = ffn_width,
                .depth = spec.init_depth(set),
                .parts = inner});
  down_ = Linear(store, prefix + ".down",
                 {.in = ffn_width,
                  .out = width,
                  .bias = spec.feed_forward.bias,
                  .defer_bias = Norm::adds_bias(spec.norm),
                  .depth = spec.init_depth(set),
                  .parts = {{Role::down, place, width}},
                  .column_units = ffn_width});
}

PendingBias FeedForward::forward(Context& context, const Tensor& x, const Dropout& dropout) const {
  if (!gated_) {
    const Weight up = up_.weight(), down = down_.weight();
    const bool in_fp8 = fp8_copy(context, up) || fp8_copy(context, down);
    if (up.is_dense() && down.is_dense() && !in_fp8)
      return {
          ops::feed_forward(context, x, up.values, up_.bias(), down.values, activation_, dropout),
          down_.bias()};
    const Tensor activated =
        ops::bias_act_dropout(context, linear(context, x, up), up_.bias(), activation_, dropout);
    return down_.forward_pending_bias(context, activated);
  }
  const Tensor gated = ops::gated_unit(context, up_.forward(context, x), activation_);
  const Tensor kept = dropout.active() ? ops::dropout(context, gated, dropout) : gated;
  return down_.forward_pending_bias(context, kept);
}

}  // namespace trafo::nn
