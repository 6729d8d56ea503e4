#include "engine/models/model_config.h"

#include "engine/core/argument_error.h"
#include "engine/models/generated/model_config_fields.h"
#include "engine/models/spec.h"

namespace trafo {
namespace {

constexpr const char* kModelConfigOrigin = "model_config";

void check_option(const char*, const OptionField&, const std::vector<int64_t>&) {}

// Layers that share parameters: a number for each layer of the stack, or an empty list.
void check_tied_layers(const char* field, const std::vector<int64_t>& tied, int64_t layers) {
  if (tied.empty()) return;
  require_argument(layers <= limits::kTiedLayers, kModelConfigOrigin, field,
                   " is for stacks of up to ", limits::kTiedLayers, " layers, this one has ",
                   layers);
  require_argument(std::ssize(tied) == layers, kModelConfigOrigin, field, " has ", tied.size(),
                   " numbers, it needs one for each of the ", layers, " layers");
  for (const int64_t number : tied)
    require_argument(number >= 1 && number <= layers, kModelConfigOrigin, field, " has the layer ",
                     number, ", the layers are 1 to ", layers);
}

// Refuses options that the architecture does not have (the column architectures of
// schema/model.toml).
void check_architecture(const ModelConfig& c) {
  const ModelConfig usual;
  const char* architecture = enum_name(c.architecture);
  const auto refuse = [](const char* option, const std::string& reason) {
    refuse_argument(kModelConfigOrigin, option, reason);
  };
#include "engine/models/generated/model_config_rules.inc"
}

bool is_gelu(Activation activation) {
  return activation == Activation::gelu || activation == Activation::gelu_erf;
}

// The options of T5.
void check_relative(const ModelConfig& c) {
  require_argument(!c.separate_output || (c.relative_buckets > 0 && c.tied_embeddings),
                   kModelConfigOrigin, "separate_output",
                   " goes with relative_buckets and tied_embeddings");
  if (c.relative_buckets == 0) return;
  require_argument(c.relative_buckets >= 4, kModelConfigOrigin, "relative_buckets",
                   " must be 0, for none, or 4 or more, got ", c.relative_buckets);
  // Half of the buckets of a causal stack have one distance each.
  require_argument(c.relative_distance > c.relative_buckets / 2, kModelConfigOrigin,
                   "relative_distance", " must be above half of relative_buckets (",
                   c.relative_buckets, "), got ", c.relative_distance);
}

// The form of a class of encoders: post-norm with learned positions, or ModernBERT's.
void check_encoder_class(const ModelConfig& c) {
  const bool modern = c.encoder_class == EncoderClass::modernbert;
  const auto demand = [&](bool holds, const char* option, const char* values) {
    require_argument(holds, kModelConfigOrigin, option, " must be ", values,
                     " in an encoder of the encoder_class ", enum_name(c.encoder_class));
  };
  demand(c.pre_norm == modern, "pre_norm", modern ? "1" : "0");
  demand((c.positions == Positions::rotary) == modern, "positions", modern ? "rotary" : "standard");
  demand((c.ffn != FeedForward::plain) == modern, "ffn", modern ? "gated" : "plain");
  demand(c.biases != modern, "biases", modern ? "0" : "1");
  demand(!modern || c.token_types == 0, "token_types", "0");
  if (modern) return demand(c.head_width == 0, "head_width", "0");
  demand(c.sliding_window == 0, "sliding_window", "0");
  demand(c.classifier_pooling == Pooling::first, "classifier_pooling", "first");
}

void check_encoder(const ModelConfig& c) {
  if (c.architecture != Architecture::encoder) return;
  const bool has_labels =
      c.encoder_head == EncoderHead::sequence || c.encoder_head == EncoderHead::token;
  require_argument(has_labels == (c.labels > 0), kModelConfigOrigin, "labels", " is ", c.labels,
                   ", and encoder_head is ", enum_name(c.encoder_head));
  require_argument(!c.pooler || c.encoder_head == EncoderHead::none, kModelConfigOrigin, "pooler",
                   " is for an encoder without head");
  require_argument(c.tied_embeddings || c.encoder_head == EncoderHead::masked_lm,
                   kModelConfigOrigin, "tied_embeddings", " 0 is for the head masked-lm");
  require_argument(c.encoder_class != EncoderClass::modernbert || !c.pooler, kModelConfigOrigin,
                   "pooler", " is not in the encoder_class modernbert");
  check_encoder_class(c);
}

void check_form(const ModelConfig& c) {
  check_architecture(c);
  check_tied_layers("decoder_tied_layers", c.decoder_tied_layers, c.decoder_layers);
  check_tied_layers("encoder_tied_layers", c.encoder_tied_layers, c.encoder_layers);
  const AttentionSpec attention = spec_of(c).decoder.attention;
  const bool rotary = c.positions == Positions::rotary;
  check_relative(c);
  require_argument(!c.fairseq_positions || c.width >= 4, kModelConfigOrigin, "fairseq_positions",
                   " is for an encoder-decoder whose width is even and at least 4");
  check_encoder(c);
  require_argument(!c.norm_outputs || (c.norm == Norm::rms && c.pre_norm), kModelConfigOrigin,
                   "norm_outputs", " goes with the norm rms and pre_norm 1");
  require_argument(!c.sandwich_norm || (c.norm == Norm::rms && c.pre_norm && !c.norm_outputs),
                   kModelConfigOrigin, "sandwich_norm",
                   " goes with the norm rms and pre_norm 1, without norm_outputs");
  const char* of_window = c.full_attention_interval > 0 ? "full_attention_interval"
                          : c.rope_local_theta > 0      ? "rope_local_theta"
                                                        : "";
  require_argument(c.sliding_window > 0 || *of_window == 0, kModelConfigOrigin, of_window,
                   " comes with sliding_window only");
  require_argument(c.rope_local_theta == 0 || rotary, kModelConfigOrigin, "rope_local_theta",
                   " comes with rotary positions only");
  require_argument(c.residual_scale == 1 || c.norm == Norm::rms, kModelConfigOrigin,
                   "residual_scale", " goes with the norm rms");
  require_argument(c.no_rope_interval == 0 || rotary, kModelConfigOrigin, "no_rope_interval",
                   " comes with rotary positions only");
  require_argument(c.norm == Norm::layer || !c.biases, kModelConfigOrigin, "norm",
                   " rms goes without biases: set those to 0");
  const char* some = c.qkv_biases              ? "qkv_biases"
                     : c.attention_output_bias ? "attention_output_bias"
                                               : "ffn_biases";
  require_argument(!c.biases || !(c.qkv_biases || c.attention_output_bias || c.ffn_biases),
                   kModelConfigOrigin, some, " is for models with biases 0");
  const bool geglu = c.ffn == FeedForward::geglu;
  const bool is_gate = geglu ? is_gelu(c.activation) : c.activation == Activation::silu;
  require_argument(c.ffn == FeedForward::plain || is_gate, kModelConfigOrigin, "activation",
                   " must be ", geglu ? "gelu or gelu_erf" : "silu", " with the feed-forward ",
                   enum_name(c.ffn), ", got ", enum_name(c.activation));
  require_argument(c.kv_heads <= c.heads, kModelConfigOrigin, "kv_heads", " must be 0 to ", c.heads,
                   ", got ", c.kv_heads);
  require_argument(c.heads % attention.key_heads == 0, kModelConfigOrigin, "kv_heads",
                   " must divide the ", c.heads, " heads, got ", c.kv_heads);
  require_argument(rotary || attention.key_heads == c.heads, kModelConfigOrigin, "kv_heads",
                   " below the number of heads (", c.kv_heads, " of ", c.heads,
                   ") come with rotary positions only");
  require_argument(c.encoder_heads == 0 || c.head_width > 0, kModelConfigOrigin, "encoder_heads",
                   " (", c.encoder_heads,
                   ") needs head_width, so that all heads have the same width");
  const int64_t most_heads = std::max(c.heads, c.encoder_heads);
  require_argument(most_heads * attention.head_dim <= limits::kModelDimension, kModelConfigOrigin,
                   "head_width", " is too large: ", most_heads, " heads of ", c.head_width,
                   " elements are more than ", limits::kModelDimension);
  require_argument(rotary || (c.rope_factor == 1 && c.rope_original_positions == 0),
                   kModelConfigOrigin,
                   c.rope_factor != 1 ? "rope_factor" : "rope_original_positions",
                   " comes with rotary positions only");
  require_argument(c.rope_low_turns < c.rope_high_turns, kModelConfigOrigin, "rope_low_turns", " (",
                   c.rope_low_turns, ") must be below rope_high_turns (", c.rope_high_turns, ")");
  const bool yarn = c.rope_scaling == RopeScaling::yarn;
  require_argument(!yarn || c.rope_original_positions > 0, kModelConfigOrigin, "rope_scaling",
                   " yarn needs rope_original_positions");
  require_argument(!yarn || c.rope_theta > 1, kModelConfigOrigin, "rope_theta",
                   " must be above 1 with rope_scaling yarn, got ", c.rope_theta);
  require_argument(yarn || c.rope_magnitude == 0, kModelConfigOrigin, "rope_magnitude",
                   " comes with rope_scaling yarn only");
  require_argument(c.rope_query_growth == 0 ||
                       (c.rope_original_positions > 0 && c.qk_norm != QkNorm::head_after_rotary),
                   kModelConfigOrigin, "rope_query_growth",
                   " needs rope_original_positions, and no norms after rotary positions");
  require_argument(!rotary || attention.head_dim % 2 == 0, kModelConfigOrigin, "positions",
                   " rotary needs heads of an even width, that of the ", c.heads, " heads is ",
                   attention.head_dim);
}

}  // namespace

void validate(const ModelConfig& c) {
  for_each_field_of_model(c, [](const OptionField& field, const auto& value) {
    check_option(kModelConfigOrigin, field, value);
  });
  require_argument(c.width % 2 == 0, kModelConfigOrigin, "width", " must be even, got ", c.width);
  require_argument(c.head_width > 0 || c.width % c.heads == 0, kModelConfigOrigin, "width", " ",
                   c.width, " is not a multiple of the ", c.heads, " heads");
  check_form(c);
}

namespace {

struct WrittenField {
  const char* key;
  bool unless_default;
  Json value;
};
std::vector<WrittenField> written_fields(const ModelConfig& config) {
  std::vector<WrittenField> fields;
  for_each_field_of_model(config, [&](const OptionField& field, const auto& value) {
    Json one;
    write_option(one, field, value);
    fields.push_back({field.json_key(), field.unless_default, *one.find(field.json_key())});
  });
  return fields;
}

}  // namespace

std::string to_json(const ModelConfig& config) {
  const std::vector<WrittenField> fields = written_fields(config), usual = written_fields({});
  Json out;
  for (size_t i = 0; i < fields.size(); ++i)
    if (!fields[i].unless_default || fields[i].value != usual[i].value)
      out[fields[i].key] = fields[i].value;
  return out.dump(2);
}

ModelConfig model_config_from_json(const std::string& text) {
  ModelConfig config;
  const Json json = parse_json(text, kModelConfigOrigin, "not a model configuration");
  const JsonFields in(json, kModelConfigOrigin, "not a model configuration");
  size_t fields = 0;
  for_each_field_of_model(config, [&](const OptionField& field, auto& value) {
    if (field.unless_default && !in.has(field.json_key())) return;
    read_option(in, kModelConfigOrigin, field, value);
    ++fields;
  });
  require(in.members().size() == fields, ErrorCode::corrupt_file, kModelConfigOrigin,
          "the configuration has ", in.members().size(), " fields, this version knows ", fields);
  validate(config);
  return config;
}

}  // namespace trafo
