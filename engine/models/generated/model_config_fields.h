// Written by scripts/generate_options.py from schema/model.toml: change that.
// clang-format off
#pragma once

#include "engine/core/option_field.h"
#include "engine/models/model_config.h"

namespace trafo {

// visit(OptionField, member) for every member of ModelConfig.
template <class Options, class Visit>
void for_each_field_of_model(Options& o, Visit visit) {
  visit(OptionField{.name = "architecture", .fixed = true}, o.architecture);
  visit(OptionField{.name = "activation", .fixed = true}, o.activation);
  visit(OptionField{.name = "vocabulary", .low = 4, .high = 4194304}, o.vocabulary);
  visit(OptionField{.name = "encoder_layers", .fixed = true, .low = 1, .high = 1024}, o.encoder_layers);
  visit(OptionField{.name = "decoder_layers", .fixed = true, .low = 1, .high = 1024}, o.decoder_layers);
  visit(OptionField{.name = "width", .fixed = true, .low = 2, .high = 16777216}, o.width);
  visit(OptionField{.name = "ffn_width", .fixed = true, .low = 1, .high = 16777216}, o.ffn_width);
  visit(OptionField{.name = "heads", .fixed = true, .low = 1, .high = 16777216}, o.heads);
  visit(OptionField{.name = "max_positions", .low = 2, .high = 16777216}, o.max_positions);
  visit(OptionField{.name = "pre_norm", .fixed = true}, o.pre_norm);
  visit(OptionField{.name = "tied_embeddings", .fixed = true}, o.tied_embeddings);
  visit(OptionField{.name = "dropout", .low = 0, .high = 1, .high_inside = false}, o.dropout);
  visit(OptionField{.name = "attention_dropout", .low = 0, .high = 1, .high_inside = false}, o.attention_dropout);
  visit(OptionField{.name = "ffn_dropout", .low = 0, .high = 1, .high_inside = false}, o.ffn_dropout);
  visit(OptionField{.name = "norm_epsilon", .low = 0, .high = 1, .low_inside = false, .high_inside = false}, o.norm_epsilon);
  visit(OptionField{.name = "norm"}, o.norm);
  visit(OptionField{.name = "positions"}, o.positions);
  visit(OptionField{.name = "fairseq_positions", .fixed = true, .unless_default = true}, o.fairseq_positions);
  visit(OptionField{.name = "learned_positions", .fixed = true, .unless_default = true}, o.learned_positions);
  visit(OptionField{.name = "ffn"}, o.ffn);
  visit(OptionField{.name = "biases"}, o.biases);
  visit(OptionField{.name = "kv_heads", .fixed = true, .low = 0, .high = 16777216, .zero = "as many as heads"}, o.kv_heads);
  visit(OptionField{.name = "rope_theta", .low = 0, .high = 1000000000000, .low_inside = false}, o.rope_theta);
  visit(OptionField{.name = "depth_scaled_init"}, o.depth_scaled_init);
  visit(OptionField{.name = "output_bias", .fixed = true}, o.output_bias);
  visit(OptionField{.name = "head_width", .fixed = true, .low = 0, .high = 16777216, .zero = "width / heads"}, o.head_width);
  visit(OptionField{.name = "qkv_biases", .fixed = true}, o.qkv_biases);
  visit(OptionField{.name = "attention_output_bias", .fixed = true}, o.attention_output_bias);
  visit(OptionField{.name = "ffn_biases", .fixed = true}, o.ffn_biases);
  visit(OptionField{.name = "rope_factor", .low = 1, .high = 1000000}, o.rope_factor);
  visit(OptionField{.name = "rope_original_positions", .low = 0, .high = 16777216, .zero = "rope_factor divides all angles"}, o.rope_original_positions);
  visit(OptionField{.name = "rope_low_turns", .low = 0, .high = 1000000, .low_inside = false}, o.rope_low_turns);
  visit(OptionField{.name = "rope_high_turns", .low = 0, .high = 1000000, .low_inside = false}, o.rope_high_turns);
  visit(OptionField{.name = "encoder_ffn_width", .fixed = true, .low = 0, .high = 16777216, .zero = "ffn_width"}, o.encoder_ffn_width);
  visit(OptionField{.name = "encoder_heads", .fixed = true, .low = 0, .high = 16777216, .zero = "heads"}, o.encoder_heads);
  visit(OptionField{.name = "decoder_tied_layers", .fixed = true}, o.decoder_tied_layers);
  visit(OptionField{.name = "encoder_tied_layers", .fixed = true}, o.encoder_tied_layers);
  visit(OptionField{.name = "qk_norm", .fixed = true, .unless_default = true}, o.qk_norm);
  visit(OptionField{.name = "rope_scaling", .unless_default = true}, o.rope_scaling);
  visit(OptionField{.name = "rope_magnitude", .unless_default = true, .low = 0, .high = 1000, .low_inside = false, .zero = "0.1 ln(rope_factor) + 1"}, o.rope_magnitude);
  visit(OptionField{.name = "norm_outputs", .fixed = true, .unless_default = true}, o.norm_outputs);
  visit(OptionField{.name = "no_rope_interval", .fixed = true, .unless_default = true, .low = 0, .high = 1024, .zero = "all layers have them"}, o.no_rope_interval);
  visit(OptionField{.name = "embedding_scale", .fixed = true, .unless_default = true, .low = 0, .high = 1000000, .low_inside = false, .zero = "1, in an encoder-decoder the root of width"}, o.embedding_scale);
  visit(OptionField{.name = "attention_scale", .fixed = true, .unless_default = true, .low = 0, .high = 1000000, .low_inside = false, .zero = "1 / the root of head_width"}, o.attention_scale);
  visit(OptionField{.name = "residual_scale", .fixed = true, .unless_default = true, .low = 0, .high = 1000000, .low_inside = false}, o.residual_scale);
  visit(OptionField{.name = "logits_divisor", .fixed = true, .unless_default = true, .low = 0, .high = 1000000, .low_inside = false}, o.logits_divisor);
  visit(OptionField{.name = "sliding_window", .fixed = true, .unless_default = true, .low = 0, .high = 16777216, .zero = "all"}, o.sliding_window);
  visit(OptionField{.name = "full_attention_interval", .fixed = true, .unless_default = true, .low = 0, .high = 1024, .zero = "all layers have the window"}, o.full_attention_interval);
  visit(OptionField{.name = "rope_local_theta", .unless_default = true, .low = 0, .high = 1000000000000, .low_inside = false, .zero = "the angles of the other layers"}, o.rope_local_theta);
  visit(OptionField{.name = "attention_soft_cap", .fixed = true, .unless_default = true, .low = 0, .high = 1000000, .low_inside = false, .zero = "none"}, o.attention_soft_cap);
  visit(OptionField{.name = "logits_soft_cap", .fixed = true, .unless_default = true, .low = 0, .high = 1000000, .low_inside = false, .zero = "none"}, o.logits_soft_cap);
  visit(OptionField{.name = "sandwich_norm", .fixed = true, .unless_default = true}, o.sandwich_norm);
  visit(OptionField{.name = "relative_buckets", .fixed = true, .unless_default = true, .low = 0, .high = 65536, .zero = "none"}, o.relative_buckets);
  visit(OptionField{.name = "relative_distance", .fixed = true, .unless_default = true, .low = 1, .high = 16777216}, o.relative_distance);
  visit(OptionField{.name = "separate_output", .fixed = true, .unless_default = true}, o.separate_output);
  visit(OptionField{.name = "encoder_class", .fixed = true, .unless_default = true}, o.encoder_class);
  visit(OptionField{.name = "encoder_head", .fixed = true, .unless_default = true}, o.encoder_head);
  visit(OptionField{.name = "classifier_pooling", .fixed = true, .unless_default = true}, o.classifier_pooling);
  visit(OptionField{.name = "labels", .fixed = true, .unless_default = true, .low = 0, .high = 4194304}, o.labels);
  visit(OptionField{.name = "token_types", .fixed = true, .unless_default = true, .low = 0, .high = 1024}, o.token_types);
  visit(OptionField{.name = "classifier_dropout", .fixed = true, .unless_default = true, .low = 0, .high = 1, .high_inside = false}, o.classifier_dropout);
  visit(OptionField{.name = "pooler", .fixed = true, .unless_default = true}, o.pooler);
  visit(OptionField{.name = "rope_query_growth", .unless_default = true, .low = 0, .high = 1000, .low_inside = false, .zero = "none"}, o.rope_query_growth);
  visit(OptionField{.name = "source_vocabulary", .fixed = true, .unless_default = true, .low = 0, .high = 4194304, .zero = "sources have the vocabulary of targets"}, o.source_vocabulary);
  visit(OptionField{.name = "base_precision", .unless_default = true}, o.base_precision);
}

}  // namespace trafo
