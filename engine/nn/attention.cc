#include "engine/nn/attention.h"

#include "engine/ops/view/view.h"

namespace trafo::nn {
namespace {

// The rows of a projection that are queries.
Part query_part(const AttentionOptions& options, const Place& place) {
  return {Role::query, place, options.query_width(), options.key_heads()};
}

LinearOptions projection(const AttentionOptions& options, const std::vector<Part>& parts) {
  int64_t out = 0;
  for (const Part& part : parts) out += part.rows;
  // The joint projection is initialised like the separate ones that it replaces.
  return {.in = options.width,
          .out = out,
          .bias = options.biases,
          .fan_out = options.width,
          .depth = options.depth,
          .parts = parts};
}

std::vector<Part> qkv_parts(const AttentionOptions& options, const Place& place) {
  std::vector<Part> parts = key_value_parts(options, place);
  parts.insert(parts.begin(), query_part(options, place));
  return parts;
}

LinearOptions output_projection(const AttentionOptions& options, const Place& place) {
  return {.in = options.query_width(),
          .out = options.width,
          .bias = options.output_bias,
          .defer_bias = options.defer_bias,
          .depth = options.depth,
          .parts = {{Role::output, place, options.width}},
          .column_units = options.key_heads()};
}

ops::AttentionOptions attention_options(const AttentionOptions& options, bool causal,
                                        const Dropout& dropout) {
  ops::AttentionOptions result;
  result.heads = options.heads;
  result.head_dim = options.head_dim();
  result.causal = causal;
  result.dropout = dropout;
  return result;
}

}  // namespace

std::vector<Part> key_value_parts(const AttentionOptions& options, const Place& place) {
  return {{Role::key, place, options.kv_width(), options.key_heads()},
          {Role::value, place, options.kv_width(), options.key_heads()}};
}

SelfAttention::SelfAttention(ParameterStore& store, const std::string& prefix,
                             const AttentionOptions& options, const Place& place)
    : qkv_(store, prefix + ".qkv", projection(options, qkv_parts(options, place))),
      output_(store, prefix + ".output", output_projection(options, place)),
      options_(options) {}

PendingBias SelfAttention::forward(Context& context, const Tensor& x,
                                   const PackedSequences& sequences, const Dropout& dropout,
                                   const KvCache* cache, int64_t layer) const {
  Tensor qkv = qkv_.forward(context, x);
  if (options_.rotary.theta > 0) {
    ops::RotaryOptions rotary;
    rotary.heads = options_.heads;
    rotary.kv_heads = options_.key_heads();
    rotary.head_dim = options_.head_dim();
    rotary.angles = options_.rotary;
    rotary.in_place = true;  // a GEMM does not keep its output for backward
    qkv = ops::rotary(context, qkv, sequences.positions, rotary);
  }
  const int64_t key_column = options_.query_width();
  const int64_t value_column = key_column + options_.kv_width();
  if (cache) cache->append(context, layer, qkv, key_column);
  const bool decode_step = cache && !cache->is_prefill();
  ops::AttentionOptions options =
      attention_options(options_, options_.causal && !decode_step, dropout);
  options.kv_heads = options_.kv_heads;
  Tensor mixed;
  if (decode_step) {
    options.max_keys = cache->longest() + 1;
    const Tensor keys_values = cache->keys_values(layer);
    mixed = ops::attention_decode(context, {qkv, 0}, {keys_values, 0},
                                  {keys_values, options_.kv_width()}, cache->key_begin(),
                                  cache->key_end(), options, sequences.cu_seqlens);
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
                               const AttentionOptions& options, const Place& place)
    : query_(store, prefix + ".query", projection(options, {query_part(options, place)})),
      output_(store, prefix + ".output", output_projection(options, place)),
      options_(options) {}

PendingBias CrossAttention::forward(Context& context, const Tensor& x,
                                    const PackedSequences& sequences,
                                    const EncoderKeysValues& encoder, int64_t layer,
                                    const Dropout& dropout, bool decode_step) const {
  const ops::AttentionInput query{query_.forward(context, x), 0};
  if (encoder.capture && encoder.capture->layer == layer) encoder.capture->queries = query.tensor;
  const int64_t kv_width = options_.kv_width();
  const ops::AttentionInput keys = encoder.part_keys(options_.cross_part, kv_width);
  const ops::AttentionInput values = encoder.part_values(options_.cross_part, kv_width);
  ops::AttentionOptions options = attention_options(options_, false, dropout);
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
