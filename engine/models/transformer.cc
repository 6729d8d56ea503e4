#include "engine/models/transformer.h"

#include <vector>

#include "engine/ops/checks.h"
#include "engine/ops/kv_cache/kv_cache.h"
#include "engine/ops/matmul/matmul.h"

namespace trafo {

Layers Transformer::layers(Context& context, const DropoutPass& pass) const {
  const Layers::Settings settings{config_.heads,
                                  config_.head_dim(),
                                  config_.activation,
                                  config_.pre_norm,
                                  config_.dropout,
                                  config_.attention_dropout,
                                  config_.ffn_dropout,
                                  config_.norm_epsilon,
                                  config_.ffn == FeedForward::swiglu,
                                  config_.positions == Positions::rotary,
                                  config_.key_heads(),
                                  config_.rope_theta};
  return Layers(context, parameters_, settings, {pass.seed, pass.step, pass.training});
}

OutputProjection Transformer::output_projection() const {
  return {parameters_.value(output_.weight),
          output_.bias == kNoParam ? Tensor{} : parameters_.value(output_.bias)};
}

Tensor Transformer::step_logits(Context& context, const Tensor& hidden,
                                const DecodeState& state) const {
  const OutputProjection output = state.output_weight.defined()
                                      ? OutputProjection{state.output_weight, state.output_bias}
                                      : output_projection();
  return ops::linear(context, hidden, output.weight, output.bias);
}

DecodeState Transformer::make_state(Context& context, int64_t rows, int64_t capacity) const {
  DecodeState state;
  state.rows = rows;
  state.capacity = capacity;
  state.self_cache = context.empty({checked_mul(rows, capacity, "start_decoding"),
                                    config_.decoder_layers * 2 * config_.kv_width()},
                                   parameters_.dtype());
  return state;
}

Transformer::SelfRanges Transformer::self_ranges(Context& context, const DecodeState& state) const {
  std::vector<int32_t> begin(static_cast<size_t>(state.rows)), slots(begin.size()),
      end(begin.size());
  for (size_t r = 0; r < begin.size(); ++r) {
    begin[r] = static_cast<int32_t>(static_cast<int64_t>(r) * state.capacity);
    slots[r] = begin[r] + static_cast<int32_t>(state.length);
    end[r] = slots[r] + 1;
  }
  return {context.from_values<int32_t>(begin, {state.rows}),
          context.from_values<int32_t>(end, {state.rows}),
          context.from_values<int32_t>(slots, {state.rows}),
          config_.positions == Positions::rotary
              ? constant_positions(context, state.rows, state.length)
              : Tensor{}};
}

Tensor Transformer::constant_positions(Context& context, int64_t rows, int64_t position) {
  const std::vector<int32_t> values(static_cast<size_t>(rows), static_cast<int32_t>(position));
  return context.from_values<int32_t>(values, {rows});
}

Tensor Transformer::cached_self_attention(const Layers& layers, const Tensor& x,
                                          const SelfAttentionParams& p, DecodeState& state,
                                          const SelfRanges& ranges, int64_t layer) const {
  Context& context = layers.context();
  const int64_t width = config_.width, kv_width = config_.kv_width();
  const int64_t column = layer * 2 * kv_width;
  const Tensor qkv = layers.queries_keys_values(x, p.qkv, ranges.positions);
  ops::kv_cache_append(context, qkv, width, 2 * kv_width, ranges.slots, state.self_cache, column);
  ops::AttentionOptions options = layers.attention_options(false, {});
  options.kv_heads = config_.kv_heads;
  options.max_keys = state.length + 1;
  const Tensor mixed = ops::attention_decode(context, {qkv, 0}, {state.self_cache, column},
                                             {state.self_cache, column + kv_width}, ranges.begin,
                                             ranges.end, options);
  return ops::linear(context, mixed, layers.param(p.output.weight));
}

Tensor Model::logits(Context& context, const Batch& batch) const {
  const OutputProjection output = output_projection();
  return ops::linear(context, hidden(context, batch, {}), output.weight, output.bias);
}

Tensor Model::decode_step(Context& context, DecodeState& state, const Tensor& ids) const {
  require(ids.defined() && ids.dtype() == DType::i32 && ids.rank() == 1 && ids.dim(0) == state.rows,
          ErrorCode::shape_mismatch, "decode_step", "ids must be int32 [", state.rows, "]");
  require(state.length < state.capacity, ErrorCode::invalid_argument, "decode_step",
          "the cache has room for ", state.capacity, " tokens and is full");
  NoGrad no_grad(context);
  Tensor logits = decode_rows(context, state, ids);
  ++state.length;
  return logits;
}

std::unique_ptr<Model> make_model(Context& context, const ModelConfig& config, uint64_t seed,
                                  DType dtype) {
  validate(config);
  require(computes_with(context.device(), dtype), ErrorCode::unsupported, "model",
          "a model cannot be ", dtype_name(dtype), " on ", device_name(context.device()),
          dtype == DType::bf16  ? ": bfloat16 is a storage type there; use float32, or CUDA"
          : dtype == DType::f64 ? ": float64 is for gradient checks on the CPU"
                                : "");
  return config.architecture == Architecture::decoder_lm
             ? make_decoder_lm(context, config, seed, dtype)
             : make_encoder_decoder(context, config, seed, dtype);
}

}  // namespace trafo
