#include "engine/nn/attention.h"

#include "engine/nn/norm.h"
#include "engine/ops/qk_norm/qk_norm.h"
#include "engine/ops/view/view.h"

namespace trafo::nn {
namespace {

// The rows of a projection that are queries.
Part query_part(const AttentionSpec& spec, const Place& place) {
  return {Role::query, place, spec.query_width(), spec.key_heads};
}

LinearOptions projection(const StackSpec& spec, int64_t set, const std::vector<Part>& parts) {
  int64_t out = 0;
  for (const Part& part : parts) out += part.rows;
  // The joint projection is initialised like the separate ones that it replaces.
  return {.in = spec.width,
          .out = out,
          .bias = spec.attention.qkv_bias,
          .fan_out = spec.width,
          .depth = spec.init_depth(set),
          .parts = parts};
}

std::vector<Part> qkv_parts(const AttentionSpec& spec, const Place& place) {
  std::vector<Part> parts = key_value_parts(spec, place);
  parts.insert(parts.begin(), query_part(spec, place));
  return parts;
}

LinearOptions output_projection(const StackSpec& spec, int64_t set, const Place& place) {
  return {.in = spec.attention.query_width(),
          .out = spec.width,
          .bias = spec.attention.output_bias,
          .defer_bias = Norm::adds_bias(spec.norm),
          .depth = spec.init_depth(set),
          .parts = {{Role::output, place, spec.width}},
          .column_units = spec.attention.key_heads};
}

ops::AttentionOptions attention_options(const AttentionSpec& spec, bool causal,
                                        const Dropout& dropout) {
  ops::AttentionOptions options;
  options.heads = spec.heads;
  options.kv_heads = spec.key_heads;
  options.head_dim = spec.head_dim;
  options.scale = spec.scale;
  options.soft_cap = spec.soft_cap;
  options.causal = causal;
  options.dropout = dropout;
  return options;
}

}  // namespace

std::vector<Part> key_value_parts(const AttentionSpec& spec, const Place& place) {
  return {{Role::key, place, spec.kv_width(), spec.key_heads},
          {Role::value, place, spec.kv_width(), spec.key_heads}};
}

SelfAttention::SelfAttention(ParameterStore& store, const std::string& prefix,
                             const StackSpec& spec, int64_t set, const Place& place)
    : qkv_(store, prefix + ".qkv", projection(spec, set, qkv_parts(spec.attention, place))),
      output_(store, prefix + ".output", output_projection(spec, set, place)),
      store_(&store),
      norm_epsilon_(spec.norm.epsilon),
      spec_(spec.attention),
      causal_(spec.causal) {
  if (spec_.qk_norm == QkNorm::none) return;
  const bool whole = spec_.qk_norm == QkNorm::whole;
  const auto declare_norm = [&](const char* name, Role role, int64_t width) {
    const int64_t size = whole ? width : spec_.head_dim;
    const ParamId id = store.declare(prefix + name, {size}, Init::ones());
    store.set_parts(id, Piece::weight, {{role, place, size}});
    return id;
  };
  query_norm_ = declare_norm(".query_norm.weight", Role::query_norm, spec_.query_width());
  key_norm_ = declare_norm(".key_norm.weight", Role::key_norm, spec_.kv_width());
}

PendingBias SelfAttention::forward(Context& context, const Tensor& x,
                                   const PackedSequences& sequences, const Dropout& dropout,
                                   const KvCache* cache, int64_t layer,
                                   const Tensor& distance_bias) const {
  Tensor qkv = qkv_.forward(context, x);
  const auto norm_heads = [&] {
    qkv = ops::qk_norm(context, qkv, store_->value(query_norm_), store_->value(key_norm_),
                       spec_.query_width(), spec_.kv_width(), norm_epsilon_);
  };
  const bool first = spec_.qk_norm == QkNorm::head || spec_.qk_norm == QkNorm::whole;
  if (first) norm_heads();
  if (spec_.rotates(layer)) {
    ops::RotaryOptions rotary;
    rotary.heads = spec_.heads;
    rotary.kv_heads = spec_.key_heads;
    rotary.head_dim = spec_.head_dim;
    rotary.angles = spec_.angles_of(layer);
    rotary.in_place = true;  // neither a GEMM nor qk_norm keeps its output for backward
    qkv = ops::rotary(context, qkv, sequences.positions, rotary);
  }
  if (spec_.qk_norm == QkNorm::head_after_rotary) norm_heads();
  const int64_t key_column = spec_.query_width();
  const int64_t value_column = key_column + spec_.kv_width();
  if (cache) cache->append(context, layer, qkv, key_column);
  const bool decode_step = cache && !cache->is_prefill();
  // The new tokens of a row are its last keys. A single one sees all of them.
  const bool masks = !decode_step || sequences.longest > 1;
  ops::AttentionOptions options = attention_options(spec_, causal_ && masks, dropout);
  options.window = spec_.window_of(layer);
  options.distance_bias = distance_bias;
  Tensor mixed;
  if (decode_step) {
    options.max_queries = sequences.longest;
    options.max_keys = cache->longest_after();
    const Tensor keys_values = cache->keys_values(layer);
    mixed =
        ops::attention_decode(context, {qkv, 0}, {keys_values, 0}, {keys_values, spec_.kv_width()},
                              cache->key_begin(), cache->key_end(), options, sequences.cu_seqlens);
  } else {
    options.max_queries = options.max_keys = sequences.longest;
    mixed = ops::attention(context, {qkv, 0}, {qkv, key_column}, {qkv, value_column},
                           sequences.cu_seqlens, sequences.cu_seqlens, options);
  }
  return output_.forward_pending_bias(context, mixed);
}

ops::AttentionInput EncoderKeysValues::part_keys(int64_t part, int64_t kv_width) const {
  if (values.rank() == 2) return {values, part * 2 * kv_width};
  const int64_t tokens = values.dim(1), width = values.dim(2);
  return {values.as_strided({tokens, width}, {width, 1}, values.offset() + part * tokens * width),
          0};
}

ops::AttentionInput EncoderKeysValues::part_values(int64_t part, int64_t kv_width) const {
  const ops::AttentionInput keys = part_keys(part, kv_width);
  return {keys.tensor, keys.column + kv_width};
}

void EncoderKeysValues::set_parts_apart(Context& context, int64_t kv_width) {
  const Tensor by_token =
      values.reshaped({values.dim(0), values.dim(1) / (2 * kv_width), 2 * kv_width});
  values = ops::contiguous(context, ops::transpose(context, by_token, 0, 1));
}

CrossAttention::CrossAttention(ParameterStore& store, const std::string& prefix,
                               const StackSpec& spec, int64_t set, const Place& place)
    : query_(store, prefix + ".query", projection(spec, set, {query_part(spec.attention, place)})),
      output_(store, prefix + ".output", output_projection(spec, set, place)),
      spec_(spec.attention),
      set_(set) {}

PendingBias CrossAttention::forward(Context& context, const Tensor& x,
                                    const PackedSequences& sequences,
                                    const EncoderKeysValues& encoder, int64_t layer,
                                    const Dropout& dropout, bool decode_step) const {
  const ops::AttentionInput query{query_.forward(context, x), 0};
  if (encoder.capture && encoder.capture->layer == layer) encoder.capture->queries = query.tensor;
  const int64_t kv_width = spec_.kv_width();
  const ops::AttentionInput keys = encoder.part_keys(set_, kv_width);
  const ops::AttentionInput values = encoder.part_values(set_, kv_width);
  ops::AttentionOptions options = attention_options(spec_, false, dropout);
  options.max_keys = encoder.sequences.longest;
  options.max_queries = sequences.longest;
  const Tensor mixed = decode_step
                           ? ops::attention_decode(context, query, keys, values, encoder.begin,
                                                   encoder.end, options, sequences.cu_seqlens)
                           : ops::attention(context, query, keys, values, sequences.cu_seqlens,
                                            encoder.sequences.cu_seqlens, options);
  return output_.forward_pending_bias(context, mixed);
}

}  // namespace trafo::nn
