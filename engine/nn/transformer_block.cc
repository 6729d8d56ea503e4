#include "engine/nn/transformer_block.h"

#include <utility>

#include "engine/ops/bias_dropout_residual/bias_dropout_residual.h"
#include "engine/ops/unary/unary.h"

namespace trafo::nn {

TransformerBlock::TransformerBlock(ParameterStore& store, const std::string& prefix,
                                   const StackSpec& spec, int64_t layer, uint32_t dropout_layer)
    : placement_(spec.norm.placement),
      residual_scale_(spec.residual_scale),
      has_cross_attention_(spec.cross_attention),
      dropout_(spec.dropout),
      attention_dropout_(spec.attention.dropout),
      ffn_dropout_(spec.feed_forward.dropout),
      layer_(layer),
      dropout_layer_(dropout_layer) {
  const Place attention{spec.stack, layer, Sublayer::attention};
  const Place cross{spec.stack, layer, Sublayer::cross_attention};
  const Place ffn{spec.stack, layer, Sublayer::feed_forward};
  // The order of declaration is the order in model files and of the initial random numbers.
  const auto norm = [&](const char* name, const Place& place) {
    return Norm(store, prefix + name, spec.norm, spec.width, place);
  };
  const auto output_norm = [&](const char* name, const Place& place) {
    return Norm(store, prefix + name, spec.norm, spec.width, place, Role::output_norm);
  };
  const int64_t set = spec.sharing.sets.at(static_cast<size_t>(layer));
  if (layer > 0 || spec.norm.first) attention_norm_ = norm(".attention_norm", attention);
  if (has_cross_attention_) cross_norm_ = norm(".cross_norm", cross);
  ffn_norm_ = norm(".ffn_norm", ffn);
  if (placement_ == NormPlacement::sandwich) {
    attention_output_norm_ = output_norm(".attention_output_norm", attention);
    ffn_output_norm_ = output_norm(".ffn_output_norm", ffn);
  }
  attention_ = SelfAttention(store, prefix + ".attention", spec, set, attention);
  if (has_cross_attention_)
    cross_attention_ = CrossAttention(store, prefix + ".cross", spec, set, cross);
  feed_forward_ = FeedForward(store, prefix + ".ffn", spec, set, ffn);
}

TransformerBlock TransformerBlock::as_layer(int64_t layer, uint32_t dropout_layer) const {
  TransformerBlock block = *this;
  block.layer_ = layer;
  block.dropout_layer_ = dropout_layer;
  return block;
}

ResidualStream TransformerBlock::begin(Context& context, const Tensor& embedded) const {
  const bool pre_norm =
      placement_ == NormPlacement::before || placement_ == NormPlacement::sandwich;
  const bool normed = pre_norm && attention_norm_.defined();
  return {embedded, normed ? attention_norm_.forward(context, embedded) : embedded};
}

ResidualStream TransformerBlock::add(Context& context, PendingBias output,
                                     const ResidualStream& stream, const Norm& next_norm,
                                     const Norm& own_norm, const Dropout& dropout) const {
  if (residual_scale_ != 1) output.matmul = ops::scale(context, output.matmul, residual_scale_);
  switch (placement_) {
    case NormPlacement::before: {
      Norm::Sum sum = next_norm.fused_add(context, output, stream.residual, dropout);
      return {sum.sum, sum.normed, std::move(sum.recompute)};
    }
    case NormPlacement::sandwich: {
      Norm::Sum sum = next_norm.fused_add(context, {own_norm.forward(context, output.matmul), {}},
                                          stream.residual, dropout);
      return {sum.sum, sum.normed, std::move(sum.recompute)};
    }
    case NormPlacement::after: {
      const Tensor normed = own_norm.fused_add(context, output, stream.residual, dropout).normed;
      return {normed, normed};
    }
    case NormPlacement::on_output: {
      const Tensor sum = ops::bias_dropout_residual(
          context, own_norm.forward(context, output.matmul), {}, stream.residual, dropout);
      return {sum, sum};
    }
  }
  fail(ErrorCode::internal, "transformer_block", "the placement of norms is unknown");
}

ResidualStream TransformerBlock::forward(Context& context, ResidualStream stream,
                                         const BlockInputs& inputs, const Norm& next_norm) const {
  const bool decode_step = inputs.cache && !inputs.cache->is_prefill();
  uint32_t id = 0;
  const auto dropout = [&](double p) { return inputs.dropout.at(dropout_layer_, id++, p); };

  PendingBias output =
      attention_.forward(context, stream.input, inputs.sequences, dropout(attention_dropout_),
                         inputs.cache, layer_, inputs.distance_bias);
  const bool sandwich = placement_ == NormPlacement::sandwich;
  stream = add(context, output, stream, has_cross_attention_ ? cross_norm_ : ffn_norm_,
               sandwich ? attention_output_norm_ : attention_norm_, dropout(dropout_));
  if (has_cross_attention_) {
    output = cross_attention_.forward(context, stream.input, inputs.sequences, inputs.encoder,
                                      layer_, dropout(attention_dropout_), decode_step);
    stream = add(context, output, stream, ffn_norm_, cross_norm_, dropout(dropout_));
  }
  output = feed_forward_.forward(context, stream.input, dropout(ffn_dropout_));
  return add(context, output, stream, next_norm, sandwich ? ffn_output_norm_ : ffn_norm_,
             dropout(dropout_));
}

}  // namespace trafo::nn
