// ModernBERT: pre-norm without biases, rotary positions with two bases, a window to both sides in
// all layers but the first and every nth one after it, gated feed-forward blocks.
#include "engine/formats/hf/modernbert.h"

#include <algorithm>

#include "engine/formats/hf/lm_files.h"

namespace trafo::interop {
namespace {

// The window of transformers is `local_attention` / 2 tokens to each side, a token itself not
// counted; sliding_window counts it.
constexpr const char* kLocalAttention = "local_attention";
constexpr const char *kInterval = "global_attn_every_n_layers", *kKindsOfLayers = "layer_types";
constexpr const char *kGlobalLayer = "full_attention", *kLocalLayer = "sliding_attention";
constexpr const char *kGlobalTheta = "global_rope_theta", *kLocalTheta = "local_rope_theta";
constexpr double kUsualGlobalTheta = 160000, kUsualLocalTheta = 10000;
constexpr int64_t kUsualLocalAttention = 128, kUsualInterval = 3;

bool is_local(const std::string& kind, const ConfigReader& json) {
  require(kind == kGlobalLayer || kind == kLocalLayer, ErrorCode::unsupported, kOrigin,
          json.label(), ": ", kKindsOfLayers, " has ", kind.substr(0, 64),
          "; there are full_attention and sliding_attention");
  return kind == kLocalLayer;
}

// The interval of the layers without a window, from the first one on; 0: all have it.
int64_t interval_of(const ConfigReader& json, int64_t layers) {
  if (!json.has(kKindsOfLayers))
    return json.has(kInterval) ? json.integer(kInterval, 1, limits::kLayers) : kUsualInterval;
  const std::vector<std::string> kinds = json.texts(kKindsOfLayers);
  require(std::ssize(kinds) == layers, ErrorCode::corrupt_file, kOrigin, json.label(), ": ",
          kKindsOfLayers, " has ", kinds.size(), " kinds, there are ", layers, " layers");
  std::vector<bool> local;
  for (const std::string& kind : kinds) local.push_back(is_local(kind, json));
  int64_t interval = 0;
  if (!local.front()) interval = std::find(local.begin() + 1, local.end(), false) - local.begin();
  for (int64_t i = 0; i < layers; ++i)
    require(local[static_cast<size_t>(i)] == (interval == 0 || i % interval != 0),
            ErrorCode::unsupported, kOrigin, json.label(), ": ", kKindsOfLayers,
            " must have full_attention in the first layer and at equal distances after it, as "
            "every 3rd, or in none");
  return interval;
}

void read_layers(const ConfigReader& json, ModelConfig& config) {
  json.refuse("sliding_window", "local_attention is the window of both sides");
  const int64_t interval = interval_of(json, config.decoder_layers);
  const int64_t both = json.has(kLocalAttention)
                           ? json.integer(kLocalAttention, 0, limits::kModelDimension)
                           : kUsualLocalAttention;
  if (interval == 1) return;
  config.sliding_window = both / 2 + 1;
  config.full_attention_interval = interval;
}

// `rope_parameters` has an object for each kind of layer; older files have two numbers.
void read_angles(const ConfigReader& json, ModelConfig& config) {
  json.refuse("rope_scaling", "rotary positions of this model_type are not scaled");
  const auto theta = [&](const char* kind, const char* key, double usual) {
    const double value = json.number(key, usual);
    constexpr const char* kObject = "rope_parameters";
    if (!json.has(kObject)) return value;
    const ConfigReader kinds = json.inside(kObject);
    kinds.allow({kGlobalLayer, kLocalLayer});
    if (!kinds.has(kind)) return value;
    const ConfigReader rope = kinds.inside(kind);
    rope.allow({"rope_type", "type", "rope_theta"});
    for (const char* type : {"rope_type", "type"})
      if (rope.has(type))
        require(rope.text(type) == "default", ErrorCode::unsupported, kOrigin, rope.label(), ": ",
                type, " is ", rope.text(type).substr(0, 64), "; there is default");
    return rope.number("rope_theta", value);
  };
  config.rope_theta = theta(kGlobalLayer, kGlobalTheta, kUsualGlobalTheta);
  const double local = theta(kLocalLayer, kLocalTheta, kUsualLocalTheta);
  if (config.sliding_window > 0) config.rope_local_theta = local;
}

void read_blocks(const ConfigReader& json, ModelConfig& config) {
  constexpr const char* kGate = "hidden_activation";
  config.activation = json.has(kGate) ? activation_from_name(json, kGate) : Activation::gelu_erf;
  require(config.activation != Activation::relu, ErrorCode::unsupported, kOrigin, json.label(),
          ": hidden_activation is relu; gates have gelu or silu");
  config.ffn = config.activation == Activation::silu ? FeedForward::swiglu : FeedForward::geglu;
  config.biases = false;
  config.qkv_biases = config.attention_output_bias = json.flag("attention_bias", false);
  config.ffn_biases = json.flag("mlp_bias", false);
}

// Keys that have one value here.
void demand_constants(const ConfigReader& json) {
  json.demand("norm_bias", false, false);
  json.demand("classifier_bias", false, false);
  constexpr const char* kTransform = "classifier_activation";
  if (json.has(kTransform))
    require(activation_from_name(json, kTransform) == Activation::gelu_erf, ErrorCode::unsupported,
            kOrigin, json.label(), ": classifier_activation is ", json.text(kTransform),
            "; there is gelu");
  constexpr const char* kHeadWidth = "head_dim";
  if (!json.has(kHeadWidth)) return;
  const int64_t width = json.integer("hidden_size", 2, limits::kModelDimension),
                heads = json.integer("num_attention_heads", 1, limits::kModelDimension);
  require(json.integer(kHeadWidth, 1, limits::kModelDimension) * heads == width,
          ErrorCode::unsupported, kOrigin, json.label(), ": ", kHeadWidth,
          " must be hidden_size / num_attention_heads");
}

Pooling read_pooling(const ConfigReader& json) {
  constexpr const char* kPooling = "classifier_pooling";
  const std::string name = json.has(kPooling) ? json.text(kPooling) : "cls";
  require(name == "cls" || name == "mean", ErrorCode::unsupported, kOrigin, json.label(), ": ",
          kPooling, " is ", name.substr(0, 64), "; there are cls and mean");
  return name == "mean" ? Pooling::mean : Pooling::first;
}

}  // namespace

void read_modernbert_config(const ConfigReader& json, ModelConfig& config) {
  demand_constants(json);
  config.pre_norm = true;
  config.positions = Positions::rotary;
  config.max_positions = json.integer("max_position_embeddings", 2, limits::kModelDimension);
  config.norm_epsilon = json.number("norm_eps", 1e-5);
  read_blocks(json, config);
  read_layers(json, config);
  read_angles(json, config);
  // transformers drops out embeddings and outputs of attention; here one number is for the
  // embeddings and the outputs of all blocks.
  config.dropout = json.number("embedding_dropout", 0);
  config.attention_dropout = json.number("attention_dropout", 0);
  config.ffn_dropout = json.number("mlp_dropout", 0);
  if (config.encoder_head == EncoderHead::sequence || config.encoder_head == EncoderHead::token)
    config.classifier_dropout = json.number("classifier_dropout", 0);
  config.classifier_pooling = read_pooling(json);
  config.output_bias = json.flag("decoder_bias", true);
}

void put_modernbert_config(const HostModel& host, const ExportVocabulary& vocabulary, Json& json) {
  const ModelSpec& spec = host.spec();
  const StackSpec& stack = spec.decoder;
  const AttentionSpec& attention = stack.attention;
  json["max_position_embeddings"] = spec.max_positions;
  json["hidden_activation"] = activation_to_name(stack.feed_forward.activation);
  json["norm_eps"] = stack.norm.epsilon;
  json["norm_bias"] = false;
  json["attention_bias"] = attention.qkv_bias;
  json["mlp_bias"] = stack.feed_forward.bias;
  json["classifier_bias"] = false;
  json["decoder_bias"] = host.config().output_bias;
  json["classifier_pooling"] = spec.head.pooling == Pooling::mean ? "mean" : "cls";
  json["embedding_dropout"] = spec.embedding.dropout;
  json["attention_dropout"] = attention.dropout;
  json["mlp_dropout"] = stack.feed_forward.dropout;
  json["classifier_dropout"] = spec.head.dropout;
  Json::List kinds;
  for (int64_t i = 0; i < stack.layers(); ++i)
    kinds.push_back(attention.window_of(i) > 0 ? kLocalLayer : kGlobalLayer);
  json[kKindsOfLayers] = std::move(kinds);
  if (attention.window == 0 || attention.full_interval > 0)
    json[kInterval] = std::max<int64_t>(1, attention.full_interval);
  json[kLocalAttention] = attention.window > 0 ? 2 * (attention.window - 1) : kUsualLocalAttention;
  const RotaryAngles& others = attention.rotary.value();
  json[kGlobalTheta] = others.theta;
  json[kLocalTheta] = attention.window_rotary.value_or(others).theta;
  put_special_ids(vocabulary.tokens, json);
  json["cls_token_id"] = vocabulary.tokens.special.bos;
  json["sep_token_id"] = vocabulary.tokens.special.eos;
}

}  // namespace trafo::interop
