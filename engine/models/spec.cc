#include "engine/models/spec.h"

#include <cmath>

#include "engine/core/status.h"
#include "engine/ops/embedding/embedding.h"

namespace trafo {
namespace {

int64_t or_else(int64_t value, int64_t otherwise) {
  return value > 0 ? value : otherwise;
}

bool is_gated(FeedForward kind) {
  switch (kind) {
    case FeedForward::plain:
      return false;
    case FeedForward::swiglu:
    case FeedForward::geglu:
      return true;
  }
  fail(ErrorCode::internal, "model", "the feed-forward kind ", static_cast<int>(kind),
       " is unknown");
}

NormPlacement norm_placement(const ModelConfig& c) {
  if (c.norm_outputs) return NormPlacement::on_output;
  if (c.sandwich_norm) return NormPlacement::sandwich;
  return c.pre_norm ? NormPlacement::before : NormPlacement::after;
}

PositionTable position_table(const ModelConfig& c, bool has_encoder) {
  if (c.relative_buckets > 0) return PositionTable::none;
  switch (c.positions) {
    case Positions::standard:
      return c.fairseq_positions                   ? PositionTable::fairseq
             : has_encoder && !c.learned_positions ? PositionTable::sinusoidal
                                                   : PositionTable::learned;
    case Positions::rotary:
      return PositionTable::none;
  }
  fail(ErrorCode::internal, "model", "the kind of positions ", static_cast<int>(c.positions),
       " is unknown");
}

bool is_modernbert(const ModelConfig& c) {
  return c.architecture == Architecture::encoder && c.encoder_class == EncoderClass::modernbert;
}

// A stack with the sizes of the decoder; the encoder may differ in them.
StackSpec common_stack(const ModelConfig& c) {
  StackSpec stack;
  stack.width = c.width;
  const bool modernbert = is_modernbert(c);
  stack.norm = {c.norm, norm_placement(c), !modernbert, !modernbert, c.norm_epsilon};
  stack.attention = {.heads = c.heads,
                     .key_heads = or_else(c.kv_heads, c.heads),
                     .head_dim = or_else(c.head_width, c.width / c.heads),
                     .qkv_bias = c.biases || c.qkv_biases,
                     .output_bias = c.biases || c.attention_output_bias,
                     .full_first = modernbert,
                     .dropout = c.attention_dropout,
                     .qk_norm = c.qk_norm,
                     .no_rope_interval = c.no_rope_interval,
                     .scale = c.attention_scale,
                     .soft_cap = c.attention_soft_cap,
                     .window = c.sliding_window,
                     .full_interval = c.full_attention_interval};
  if (c.relative_buckets > 0)
    stack.attention.relative = RelativeSpec{c.relative_buckets, c.relative_distance};
  if (c.positions == Positions::rotary) {
    RotaryAngles& angles = stack.attention.rotary.emplace();
    angles = {c.rope_theta,     c.rope_factor,     c.rope_original_positions,
              c.rope_low_turns, c.rope_high_turns, c.rope_scaling};
    if (c.rope_scaling == RopeScaling::yarn)
      angles.magnitude = c.rope_magnitude > 0 ? c.rope_magnitude : yarn_magnitude(c.rope_factor);
    angles.query_growth = c.rope_query_growth;
    if (c.rope_local_theta > 0) {
      stack.attention.window_rotary.emplace();
      stack.attention.window_rotary->theta = c.rope_local_theta;
    }
  }
  stack.feed_forward = {.width = c.ffn_width,
                        .gated = is_gated(c.ffn),
                        .activation = c.activation,
                        .bias = c.biases || c.ffn_biases,
                        .dropout = c.ffn_dropout};
  stack.dropout = c.dropout;
  stack.depth_scaled_init = c.depth_scaled_init;
  stack.residual_scale = c.residual_scale;
  return stack;
}

}  // namespace

ModelSpec spec_of(const ModelConfig& c) {
  ModelSpec spec{c.architecture, c.vocabulary, c.max_positions};
  const bool has_encoder = info_of(c.architecture).has_encoder;
  spec.decoder = common_stack(c);
  spec.decoder.stack = Stack::decoder;
  spec.decoder.sharing = layer_sharing(c.decoder_layers, c.decoder_tied_layers);
  const bool is_encoder = c.architecture == Architecture::encoder;
  spec.decoder.causal = !is_encoder;
  spec.decoder.cross_attention = has_encoder;
  if (has_encoder) {
    StackSpec& encoder = spec.encoder.emplace(common_stack(c));
    encoder.stack = Stack::encoder;
    encoder.sharing = layer_sharing(c.encoder_layers, c.encoder_tied_layers);
    encoder.attention.heads = or_else(c.encoder_heads, c.heads);
    encoder.attention.key_heads =
        encoder.attention.heads * spec.decoder.attention.key_heads / c.heads;
    encoder.feed_forward.width = or_else(c.encoder_ffn_width, c.ffn_width);
  }
  spec.embedding = {.scale = c.embedding_scale > 0 ? c.embedding_scale
                             : has_encoder         ? std::sqrt(static_cast<double>(c.width))
                                                   : 1,
                    .positions = position_table(c, has_encoder),
                    .shared = !has_encoder || (c.tied_embeddings && c.source_vocabulary == 0),
                    .own_sources = c.source_vocabulary,
                    .dropout = c.dropout,
                    .norm = c.learned_positions || is_encoder,
                    .token_types = c.token_types};
  const bool has_labels = c.labels > 0;
  const bool output_bias = is_encoder ? has_labels || c.output_bias : c.biases && c.output_bias;
  spec.output = {c.tied_embeddings && !c.separate_output && !has_labels, output_bias,
                 c.logits_divisor,
                 has_labels                                               ? c.labels
                 : is_encoder && c.encoder_head != EncoderHead::masked_lm ? 0
                                                                          : c.vocabulary,
                 c.logits_soft_cap};
  const bool pools = c.encoder_head == EncoderHead::sequence && !is_modernbert(c);
  spec.head = {c.encoder_head, c.pooler || pools, c.encoder_class, c.classifier_pooling,
               c.classifier_dropout};
  return spec;
}

void require_generation(const ModelSpec& spec, const char* origin) {
  require(spec.architecture != Architecture::encoder, ErrorCode::unsupported, origin,
          "the model is an encoder: it has embeddings, hidden states and labels of texts, and "
          "generates and scores nothing");
}

Tensor fixed_positions(Context& context, const ModelSpec& spec, DType dtype) {
  const auto table =
      spec.embedding.positions == PositionTable::fairseq ? fairseq_positions : sinusoidal_positions;
  return table(context, spec.max_positions, spec.width(), dtype);
}

}  // namespace trafo
