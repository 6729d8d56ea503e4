#include "engine/nn/layers.h"

#include <cmath>
#include <memory>

#include "engine/autograd/checkpoint.h"
#include "engine/ops/bias_dropout_residual/bias_dropout_residual.h"
#include "engine/ops/dropout/dropout.h"
#include "engine/ops/feed_forward/feed_forward.h"
#include "engine/ops/layer_norm/layer_norm.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/rms_norm/rms_norm.h"
#include "engine/ops/rotary/rotary.h"
#include "engine/ops/swiglu/swiglu.h"

namespace trafo {

LayerDeclarer LayerDeclarer::at(int64_t index) const {
  LayerDeclarer layer = *this;
  layer.depth_ = index + 1;
  return layer;
}

LinearParams LayerDeclarer::linear(const std::string& prefix, int64_t out, int64_t in,
                                   int64_t fan_out, int64_t layers) const {
  Init init = Init::xavier_uniform(in, fan_out);
  if (form_.depth_scaled) {
    init.scale /= std::sqrt(static_cast<double>(depth_));
    init.layer_elements = layers > 1 ? out / layers * in : 0;
  }
  const ParamId weight = store_.declare(prefix + ".weight", {out, in}, init);
  return {weight, form_.biases ? store_.declare(prefix + ".bias", {out}, Init::zeros()) : kNoParam};
}

NormParams LayerDeclarer::norm(const std::string& prefix) const {
  const ParamId gamma = store_.declare(prefix + ".weight", {width_}, Init::ones());
  if (form_.rms_norm) return {gamma, kNoParam};
  return {gamma, store_.declare(prefix + ".bias", {width_}, Init::zeros())};
}

SelfAttentionParams LayerDeclarer::self_attention(const std::string& prefix) const {
  // Joint products are initialised as the separate ones they stand for.
  const int64_t rows = form_.qkv_width > 0 ? form_.qkv_width : 3 * width_;
  return {linear(prefix + ".qkv", rows, width_, width_),
          linear(prefix + ".output", width_, width_, width_)};
}

CrossAttentionParams LayerDeclarer::cross_attention(const std::string& prefix) const {
  return {linear(prefix + ".query", width_, width_, width_),
          linear(prefix + ".output", width_, width_, width_)};
}

FeedForwardParams LayerDeclarer::feed_forward(const std::string& prefix, int64_t ffn_width) const {
  if (form_.gated)
    return {linear(prefix + ".gate_up", 2 * ffn_width, width_, ffn_width),
            linear(prefix + ".down", width_, ffn_width, width_)};
  return {linear(prefix + ".up", ffn_width, width_, ffn_width),
          linear(prefix + ".down", width_, ffn_width, width_)};
}

Tensor Layers::linear(const Tensor& x, const LinearParams& p) const {
  return ops::linear(context_, x, param(p.weight), param(p.bias));
}

Tensor Layers::norm(const Tensor& x, const NormParams& p) const {
  if (p.beta == kNoParam) return ops::rms_norm(context_, x, param(p.gamma), settings_.norm_epsilon);
  return ops::layer_norm(context_, x, param(p.gamma), param(p.beta), settings_.norm_epsilon);
}

Rows Layers::start(const Tensor& embedded, const NormParams& first) const {
  return {embedded, settings_.pre_norm ? norm(embedded, first) : embedded};
}

Rows Layers::seam(const Tensor& output, const LinearParams& projection, const Rows& rows,
                  const NormParams& norm, const Dropout& dropout) const {
  if (norm.beta == kNoParam) {  // then the projection has no bias either
    const ops::ResidualRmsNorm result = ops::residual_rms_norm(
        context_, output, rows.hidden, param(norm.gamma), settings_.norm_epsilon, dropout);
    if (settings_.pre_norm) return {result.sum, result.normed, result.recompute};
    return {result.normed, result.normed};
  }
  const ops::ResidualNorm result = ops::bias_dropout_residual_norm(
      context_, output, param(projection.bias), rows.hidden, param(norm.gamma), param(norm.beta),
      settings_.norm_epsilon, dropout);
  if (settings_.pre_norm) return {result.sum, result.normed, result.recompute};
  return {result.normed, result.normed};
}

ops::AttentionOptions Layers::attention_options(bool causal, const Dropout& dropout) const {
  ops::AttentionOptions options;
  options.heads = settings_.heads;
  options.head_dim = settings_.head_dim;
  options.causal = causal;
  options.dropout = dropout;
  return options;
}

Tensor Layers::queries_keys_values(const Tensor& x, const LinearParams& p,
                                   const Tensor& positions) const {
  const Tensor qkv = linear(x, p);
  if (!settings_.rotary) return qkv;
  ops::RotaryOptions options;
  options.heads = settings_.heads;
  options.kv_heads = settings_.kv_heads;
  options.head_dim = settings_.head_dim;
  options.theta = settings_.rope_theta;
  options.in_place = true;  // products do not keep what they wrote
  return ops::rotary(context_, qkv, positions, options);
}

Tensor Layers::self_attention(const Tensor& x, const SelfAttentionParams& p, const PackedSide& side,
                              bool causal, const Dropout& dropout) const {
  const int64_t width = settings_.heads * settings_.head_dim;
  const int64_t kv_width = settings_.kv_heads * settings_.head_dim;
  const Tensor qkv = queries_keys_values(x, p.qkv, side.positions);
  ops::AttentionOptions options = attention_options(causal, dropout);
  options.kv_heads = settings_.kv_heads;
  options.max_queries = options.max_keys = side.longest;
  const Tensor mixed = ops::attention(context_, {qkv, 0}, {qkv, width}, {qkv, width + kv_width},
                                      side.cu_seqlens, side.cu_seqlens, options);
  return ops::linear(context_, mixed, param(p.output.weight));
}

Tensor Layers::cross_attention(const Tensor& x, const CrossAttentionParams& p, const Tensor& kv,
                               int64_t column, const PackedSide& queries, const PackedSide& keys,
                               const Dropout& dropout) const {
  const int64_t width = settings_.heads * settings_.head_dim;
  const Tensor query = linear(x, p.query);
  ops::AttentionOptions options = attention_options(false, dropout);
  options.max_queries = queries.longest;
  options.max_keys = keys.longest;
  const Tensor mixed = ops::attention(context_, {query, 0}, {kv, column}, {kv, column + width},
                                      queries.cu_seqlens, keys.cu_seqlens, options);
  return ops::linear(context_, mixed, param(p.output.weight));
}

Rows Layers::layer(const Rows& rows, const Tensor& memory, LayerFn fn) const {
  if (context_.recompute() != Recompute::full) return fn(rows, memory);
  // The first run leaves here what spares the next region its copy of `input`.
  const auto recompute = std::make_shared<std::function<Tensor(Context&)>>();
  const std::vector<Tensor> outputs =
      checkpoint(context_, {rows.hidden, rows.input, memory},
                 [fn = std::move(fn), recompute](Context&, const std::vector<Tensor>& inputs) {
                   Rows result = fn({inputs[0], inputs[1]}, inputs[2]);
                   *recompute = std::move(result.recompute_input);
                   return std::vector<Tensor>{result.hidden, result.input};
                 });
  if (outputs[1].variable()) outputs[1].variable()->recompute = std::move(*recompute);
  return {outputs[0], outputs[1]};
}

Tensor Layers::feed_forward(const Tensor& x, const FeedForwardParams& p,
                            const Dropout& dropout) const {
  if (settings_.gated) {
    const Tensor gated = ops::swiglu(context_, linear(x, p.up));
    const Tensor kept = dropout.active() ? ops::dropout(context_, gated, dropout) : gated;
    return ops::linear(context_, kept, param(p.down.weight));
  }
  return ops::feed_forward(context_, x, param(p.up.weight), param(p.up.bias), param(p.down.weight),
                           settings_.activation, dropout);
}

}  // namespace trafo
