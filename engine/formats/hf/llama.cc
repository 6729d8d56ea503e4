// Directories of transformers for LlamaForCausalLM and the models of its form: pre-norm, RMS norm,
// rotary positions over the halves of a head, SwiGLU, grouped-query attention. Mistral differs in a
// window of its attention, Qwen2 in biases of queries, keys and values, Qwen3 and Hunyuan in norms
// of queries and keys, Phi-3 in joined matrices, SmolLM3 in layers without rotary positions,
// Granite in four factors, OLMo 2 in norms of queries and keys and of outputs. Gemma 2 and 3 have
// GEGLU, norms of inputs and outputs, scaled embeddings, soft caps, and layers with a window
// between those without, with other rotary positions in Gemma 3. Queries of Ministral 3 grow with
// their positions.
#include <algorithm>
#include <cmath>

#include "engine/core/numeric/portable_power.h"
#include "engine/formats/formats.h"
#include "engine/formats/hf/directory.h"
#include "engine/formats/hf/lm_files.h"

namespace trafo::interop {
namespace {

namespace fs = std::filesystem;

// A class of transformers, and what it has beside Llama's form. A model is exported as the first
// that can be it.
struct LlamaClass {
  const char* architecture;
  const char* model_type;
  LlamaForm form;  // with heads of any width and all kinds of stretched positions
};
constexpr const char *kSomeBiases = "none qkv+output", *kAnyBiases = "none ffn qkv+output all";
constexpr LlamaClass kClasses[] = {
    {"LlamaForCausalLM", "llama", {.biases = kAnyBiases}},
    {"MistralForCausalLM", "mistral", {.window = "all"}},
    {"Qwen2ForCausalLM", "qwen2", {.biases = "qkv", .window = "*"}},
    {"Qwen3ForCausalLM", "qwen3", {.biases = kSomeBiases, .qk_norm = QkNorm::head, .window = "*"}},
    {"HunYuanDenseV1ForCausalLM",
     "hunyuan_v1_dense",
     {.biases = kSomeBiases, .qk_norm = QkNorm::head_after_rotary}},
    {"SmolLM3ForCausalLM", "smollm3", {.biases = kAnyBiases, .no_rope_interval = "*"}},
    {"GraniteForCausalLM", "granite", {.biases = kAnyBiases, .scaled = true}},
    {"Olmo2ForCausalLM",
     "olmo2",
     {.biases = kSomeBiases, .qk_norm = QkNorm::whole, .norms = NormPlacement::on_output}},
    {"Gemma2ForCausalLM",
     "gemma2",
     {.biases = kSomeBiases,
      .norms = NormPlacement::sandwich,
      .window = "*",
      .gemma = true,
      .attention_scale = "*",
      .soft_caps = "*"}},
    {"Gemma3ForCausalLM",
     "gemma3_text",
     {.biases = kSomeBiases,
      .qk_norm = QkNorm::head,
      .norms = NormPlacement::sandwich,
      .window = "*",
      .gemma = true,
      .local_theta = "*",
      .attention_scale = "*",
      .soft_caps = "*"}},
    {"Ministral3ForCausalLM", "ministral3", {.window = "none all", .query_growth = "*"}}};

// Which layers have the window `sliding_window`.
enum class Window : uint8_t {
  none,           // caches of transformers ask every class for it all the same
  none_if_used,   // as above, with use_sliding_window
  all,            // Mistral, Phi-3, Ministral 3
  from_a_number,  // Qwen, with use_sliding_window: from max_window_layers on, or by layer_types
  by_interval     // Gemma: all but every nth layer, or by layer_types
};

// A model_type: what its configuration may say, and what it means.
struct LlamaType {
  const char* name;
  Window window = Window::none;
  int64_t usual_window = 0;                       // without sliding_window
  bool attention_bias = false, mlp_bias = false;  // keys that may be true
  bool qkv_biases = false;                        // without a key
  QkNorm qk_norm = QkNorm::none;
  bool kv_heads_may_lack = true;  // as many as heads then
  int64_t head_width = 0;         // without head_dim; 0: hidden_size / heads
  double epsilon = 1e-6;          // without rms_norm_eps
  bool stretches = true;          // positions, by other rope_types than "default"
  bool joined = false;            // see llama_tensors()
  double theta = 1e4;             // without rope_theta
  bool tied = false;              // without tie_word_embeddings
  bool skips_rope = false;        // in the layers of no_rope_layers
  bool scaled = false;            // by the four factors of Granite
  bool norm_outputs = false;
  bool query_growth = false;             // see read_query_growth()
  bool gemma = false;                    // see read_gemma()
  int64_t usual_interval = 0;            // Window::by_interval without sliding_window_pattern
  bool has_pattern = false;              // which the class reads
  bool local_rope = false;               // see read_gemma_rope()
  double score_cap = 0, logits_cap = 0;  // usual ones; 0: none, of scores at all
};
constexpr LlamaType kTypes[] = {
    {.name = "llama", .attention_bias = true, .mlp_bias = true},
    {.name = "mistral", .window = Window::all, .usual_window = 4096, .kv_heads_may_lack = false},
    {.name = "qwen2",
     .window = Window::from_a_number,
     .usual_window = 4096,
     .qkv_biases = true,
     .kv_heads_may_lack = false},
    {.name = "qwen3",
     .window = Window::from_a_number,
     .usual_window = 4096,
     .attention_bias = true,
     .qk_norm = QkNorm::head,
     .kv_heads_may_lack = false,
     .head_width = 128},
    {.name = "hunyuan_v1_dense",
     .attention_bias = true,
     .qk_norm = QkNorm::head_after_rotary,
     .epsilon = 1e-5},
    {.name = "phi3", .window = Window::all, .epsilon = 1e-5, .stretches = false, .joined = true},
    {.name = "smollm3",
     .window = Window::none_if_used,
     .attention_bias = true,
     .mlp_bias = true,
     .kv_heads_may_lack = false,
     .theta = 2e6,
     .tied = true,
     .skips_rope = true},
    {.name = "granite", .attention_bias = true, .mlp_bias = true, .scaled = true},
    {.name = "olmo2",
     .attention_bias = true,
     .qk_norm = QkNorm::whole,
     .epsilon = 1e-5,
     .norm_outputs = true},
    {.name = "gemma2",
     .window = Window::by_interval,
     .usual_window = 4096,
     .attention_bias = true,
     .kv_heads_may_lack = false,
     .head_width = 256,
     .tied = true,
     .gemma = true,
     .usual_interval = 2,
     .score_cap = 50,
     .logits_cap = 30},
    {.name = "gemma3_text",
     .window = Window::by_interval,
     .usual_window = 4096,
     .attention_bias = true,
     .qk_norm = QkNorm::head,
     .kv_heads_may_lack = false,
     .head_width = 256,
     .theta = 1e6,
     .tied = true,
     .gemma = true,
     .usual_interval = 6,
     .has_pattern = true,
     .local_rope = true},
    {.name = "ministral3",
     .window = Window::all,
     .kv_heads_may_lack = false,
     .head_width = 128,
     .epsilon = 1e-5,
     .query_growth = true}};

const LlamaType& type_of(std::string_view name) {
  for (const LlamaType& type : kTypes)
    if (name == type.name) return type;
  fail(ErrorCode::internal, kOrigin, "model_type ", name, " is not of this form");
}
const LlamaType& type_of(const ConfigReader& json) {
  return type_of(json.text("model_type"));
}

constexpr const char *kNoRopeLayers = "no_rope_layers", *kNoRopeInterval = "no_rope_layer_interval";
constexpr const char *kMaxPositions = "max_position_embeddings",
                     *kOriginal = "original_max_position_embeddings";
constexpr const char *kRopeParameters = "rope_parameters", *kRopeScaling = "rope_scaling";
constexpr const char *kQueryGrowth = "llama_4_scaling_beta",
                     *kGrowthForVllm = "llama_4_scaling";  // where vLLM reads it, and it alone
constexpr const char *kWindow = "sliding_window", *kLayerTypes = "layer_types",
                     *kWindowedLayer = "sliding_attention", *kFullLayer = "full_attention";
constexpr const char* kGemmaScale = "query_pre_attn_scalar";
constexpr const char *kScoreCap = "attn_logit_softcapping", *kLogitsCap = "final_logit_softcapping";

Json rope_json(const RotaryAngles& angles) {
  const bool yarn = angles.scaling == RopeScaling::yarn;
  if (angles.factor == 1 && !yarn) return nullptr;
  Json json;
  json["factor"] = angles.factor;
  if (angles.original_positions == 0) {
    json["rope_type"] = "linear";
    return json;
  }
  if (yarn) {
    json["rope_type"] = "yarn";
    json[kOriginal] = angles.original_positions;
    json["beta_slow"] = angles.low_turns;
    json["beta_fast"] = angles.high_turns;
    json["attention_factor"] = angles.magnitude;
    if (angles.query_growth > 0) json[kQueryGrowth] = angles.query_growth;
    return json;
  }
  json["rope_type"] = "llama3";
  json["low_freq_factor"] = angles.low_turns;
  json["high_freq_factor"] = angles.high_turns;
  json[kOriginal] = angles.original_positions;
  return json;
}

// Keys of the layers with a window, of classes that may have some.
void put_windows(const AttentionSpec& attention, int64_t layers, const LlamaClass& of, Json& json) {
  const std::string_view type = of.model_type;
  if (type == "mistral" || type == "ministral3") {
    if (attention.window > 0) json[kWindow] = attention.window;
    return;
  }
  const bool by_flag = type == "qwen2" || type == "qwen3";
  if (by_flag || type == "smollm3") json["use_sliding_window"] = attention.window > 0;
  if (!of.form.gemma && (!by_flag || attention.window == 0)) return;
  Json::List types;
  int64_t window = attention.window;
  for (int64_t i = 0; i < layers; ++i)
    types.push_back(attention.window_of(i) > 0 ? kWindowedLayer : kFullLayer);
  json[kLayerTypes] = std::move(types);
  if (window == 0) window = ModelConfig{}.max_positions;  // no layer has it
  json[kWindow] = window;
  if (by_flag) json["max_window_layers"] = 0;
}

Json cap_json(double cap) {
  return cap > 0 ? Json(cap) : Json(nullptr);
}

void put_gemma(const ModelSpec& spec, const LlamaClass& of, Json& json) {
  const AttentionSpec& attention = spec.decoder.attention;
  // The class reads a whole number.
  const double wanted = attention.scale > 0 ? portable_pow(attention.scale, -2.0)
                                            : static_cast<double>(attention.head_dim);
  const double scalar = std::round(wanted);
  if (std::abs(scalar - wanted) > 1e-9 * wanted)
    cannot_express(of.architecture, concat("attention_scale ", attention.scale,
                                           ", which is not 1 / the root of a whole number"));
  json[kGemmaScale] = static_cast<int64_t>(scalar);
  const bool caps_scores = type_of(of.model_type).score_cap > 0;
  if (!caps_scores && attention.soft_cap > 0)
    cannot_express(of.architecture, concat("attention_soft_cap ", attention.soft_cap));
  json[kScoreCap] = cap_json(attention.soft_cap);
  json[kLogitsCap] = cap_json(spec.output.soft_cap);
  if (std::string_view(of.model_type) == "gemma2") return;
  const RotaryAngles& others = *attention.rotary;
  if (!attention.window_rotary && attention.window > 0 &&
      (others.factor != 1 || others.scaling == RopeScaling::yarn))
    cannot_express(of.architecture,
                   "scaled rotary positions in layers with a window (no rope_local_theta)");
  json["rope_local_base_freq"] = attention.window_rotary.value_or(others).theta;
}

Json llama_config(const ModelSpec& spec, const ExportVocabulary& vocabulary) {
  const StackSpec& decoder = spec.decoder;
  const AttentionSpec& attention = decoder.attention;
  const RotaryAngles angles = attention.rotary.value();
  const LlamaClass& its_class = kClasses[std::max(0, match(spec, hf_llama_expressible()).form)];
  Json json;
  json["architectures"] = Json::List{its_class.architecture};
  json["model_type"] = its_class.model_type;
  json["vocab_size"] = spec.vocabulary;
  json[kMaxPositions] = spec.max_positions;
  json["hidden_size"] = decoder.width;
  json["intermediate_size"] = decoder.feed_forward.width;
  json["num_hidden_layers"] = decoder.layers();
  json["num_attention_heads"] = attention.heads;
  json["num_key_value_heads"] = attention.key_heads;
  json["head_dim"] = attention.head_dim;
  const Activation activation = decoder.feed_forward.activation;
  json[its_class.form.gemma ? "hidden_activation" : "hidden_act"] =
      activation == Activation::silu   ? "silu"
      : activation == Activation::gelu ? "gelu_pytorch_tanh"
                                       : activation_to_name(activation);
  json["rms_norm_eps"] = decoder.norm.epsilon;
  json["rope_theta"] = angles.theta;
  json[kRopeScaling] = rope_json(angles);
  if (angles.query_growth > 0) {
    Json growth;
    growth[kOriginal] = angles.original_positions;
    growth["beta"] = angles.query_growth;
    json[kGrowthForVllm] = std::move(growth);
  }
  json["attention_dropout"] = attention.dropout;
  const std::string_view type = its_class.model_type;
  if (type != "qwen2" && type != "mistral" && type != "ministral3")
    json["attention_bias"] = attention.qkv_bias;
  if (type == "llama" || type == "smollm3" || type == "granite")
    json["mlp_bias"] = decoder.feed_forward.bias;
  if (type == "llama") json["pretraining_tp"] = 1;
  put_windows(attention, decoder.layers(), its_class, json);
  if (its_class.form.gemma) put_gemma(spec, its_class, json);
  if (type == "smollm3") {
    Json::List rotated;
    for (int64_t i = 0; i < decoder.layers(); ++i) rotated.push_back(attention.rotates(i) ? 1 : 0);
    json[kNoRopeLayers] = std::move(rotated);
    json[kNoRopeInterval] = attention.no_rope_interval;
  }
  if (type == "granite") {
    json["embedding_multiplier"] = spec.embedding.scale;
    json["attention_multiplier"] = attention.scale > 0
                                       ? attention.scale
                                       : 1 / std::sqrt(static_cast<double>(attention.head_dim));
    json["residual_multiplier"] = decoder.residual_scale;
    json["logits_scaling"] = spec.output.divisor;
  }
  json["tie_word_embeddings"] = spec.output.tied;
  json["use_cache"] = true;
  put_special_ids(vocabulary.tokens, json);
  put_type_and_version(json);
  return json;
}

void demand_whole_heads(const ConfigReader& reader) {
  const double share = reader.number("partial_rotary_factor", 1);
  require(share == 1, ErrorCode::unsupported, kOrigin, reader.label(),
          ": partial_rotary_factor is ", share, ", rotary positions here turn whole heads");
}

// YaRN as _compute_yarn_parameters of transformers 5.23 (modeling_rope_utils.py) reads it, with its
// defaults.
void read_yarn(const ConfigReader& rope, ModelConfig& config) {
  const auto or_usual = [&](const char* key, double usual) {
    const double value = rope.number(key, usual);
    return value == 0 ? usual : value;
  };
  config.rope_scaling = RopeScaling::yarn;
  config.rope_low_turns = or_usual("beta_slow", kYarnSlow);
  config.rope_high_turns = or_usual("beta_fast", kYarnFast);
  require(config.rope_low_turns > 0 && config.rope_low_turns < config.rope_high_turns,
          ErrorCode::corrupt_file, kOrigin, rope.label(),
          ": beta_slow must be above 0 and below beta_fast");
  rope.demand("truncate", true, true);
  const double mscale = rope.number("mscale", 0), of_all = rope.number("mscale_all_dim", 0);
  constexpr const char* kFactor = "attention_factor";
  if (rope.has(kFactor))
    config.rope_magnitude = rope.number(kFactor);
  else if (mscale != 0 && of_all != 0)
    config.rope_magnitude =
        yarn_magnitude(config.rope_factor, mscale) / yarn_magnitude(config.rope_factor, of_all);
  else
    return;
  require(config.rope_magnitude > 0, ErrorCode::corrupt_file, kOrigin, rope.label(), ": ",
          rope.has(kFactor) ? kFactor : "mscale", " must be above 0");
}

// Ministral 3, whose class reads no other scaling. It does not read the max_position_embeddings
// that it writes there.
void read_query_growth(const ConfigReader& json, const ConfigReader& rope, const std::string& type,
                       ModelConfig& config) {
  require(type == "yarn", ErrorCode::unsupported, kOrigin, rope.label(), ": rope_type is ", type,
          "; this model_type has yarn");
  config.rope_query_growth = rope.number(kQueryGrowth);
  require(config.rope_query_growth >= 0, ErrorCode::corrupt_file, kOrigin, rope.label(), ": ",
          kQueryGrowth, " must be at least 0");
  if (!json.has(kGrowthForVllm)) return;
  const ConfigReader again = json.inside(kGrowthForVllm);
  require(again.number("beta") == config.rope_query_growth &&
              again.number(kOriginal) == static_cast<double>(config.rope_original_positions),
          ErrorCode::unsupported, kOrigin, json.label(), ": ", kGrowthForVllm,
          " has other values than ", kQueryGrowth, " and ", kOriginal, " of ", rope.label());
}

// The scaling that `rope` describes. The keys of its type are allowed and no others.
void read_rope_scaling(const ConfigReader& json, const ConfigReader& rope, const LlamaType& of,
                       const std::string& type, ModelConfig& config) {
  if (type == "default") {
    rope.allow({"rope_type", "type", "rope_theta", "partial_rotary_factor"});
    return;
  }
  config.rope_factor = rope.number("factor");
  require(config.rope_factor >= 1, ErrorCode::corrupt_file, kOrigin, rope.label(),
          ": factor must be at least 1");
  if (type == "linear") {
    rope.allow({"rope_type", "type", "rope_theta", "partial_rotary_factor", "factor"});
    return;
  }
  const auto original = [&] {
    return (json.has(kOriginal) ? json : rope).integer(kOriginal, 1, limits::kModelDimension);
  };
  if (type == "yarn") {
    rope.allow({"rope_type", "type", "rope_theta", "partial_rotary_factor", "factor", kOriginal,
                "beta_fast", "beta_slow", "attention_factor", "mscale", "mscale_all_dim",
                "truncate", of.query_growth ? kQueryGrowth : "factor",
                of.query_growth ? kMaxPositions : "factor"});
    const bool has_original = json.has(kOriginal) || rope.has(kOriginal);
    config.rope_original_positions = has_original ? original() : config.max_positions;
    return read_yarn(rope, config);
  }
  rope.allow({"rope_type", "type", "rope_theta", "partial_rotary_factor", "factor",
              "low_freq_factor", "high_freq_factor", kOriginal});
  config.rope_low_turns = rope.number("low_freq_factor");
  config.rope_high_turns = rope.number("high_freq_factor");
  require(config.rope_low_turns > 0 && config.rope_low_turns < config.rope_high_turns,
          ErrorCode::corrupt_file, kOrigin, rope.label(),
          ": low_freq_factor must be above 0 and below high_freq_factor");
  config.rope_original_positions = original();
}

// The "dynamic" scaling of Hunyuan with an alpha (compute_ntk_alpha_rope_parameters of transformers
// 5.23) is another theta. Its other keys are of no effect there.
void read_alpha(const ConfigReader& rope, ModelConfig& config) {
  rope.allow({"rope_type", "type", "rope_theta", "partial_rotary_factor", "alpha", "factor",
              "beta_fast", "beta_slow", "mscale", "mscale_all_dim"});
  const double alpha = rope.number("alpha");
  const auto width =
      static_cast<double>(config.head_width > 0 ? config.head_width : config.width / config.heads);
  require(alpha > 0 && width > 2, ErrorCode::corrupt_file, kOrigin, rope.label(),
          ": alpha must be above 0, in heads of more than two elements");
  config.rope_theta *= portable_pow(alpha, width / (width - 2));
}

std::string read_rope_type(const ConfigReader& rope, bool stretches, bool has_alpha) {
  std::string type = "default";
  for (const char* field : {"type", "rope_type"}) {
    if (!rope.has(field)) continue;
    type = rope.text(field);
    if (type == "dynamic" && has_alpha) continue;
    require(type == "default" ||
                (stretches && (type == "linear" || type == "llama3" || type == "yarn")),
            ErrorCode::unsupported, kOrigin, rope.label(), ": ", field, " is ", type.substr(0, 64),
            stretches ? "; there are default, linear, llama3 and yarn" : "; there is default");
  }
  demand_whole_heads(rope);
  return type;
}

void read_rope_object(const ConfigReader& json, const ConfigReader& rope, const LlamaType& of,
                      ModelConfig& config) {
  const bool has_alpha = of.qk_norm == QkNorm::head_after_rotary && rope.has("alpha");
  const std::string type = read_rope_type(rope, of.stretches, has_alpha);
  config.rope_theta = rope.number("rope_theta", config.rope_theta);
  if (type == "dynamic")
    read_alpha(rope, config);
  else
    read_rope_scaling(json, rope, of, type, config);
  if (of.query_growth) read_query_growth(json, rope, type, config);
}

// Gemma 3: `rope_parameters` has an object for each kind of layer. Older files have rope_theta,
// rope_scaling, which is not of the layers with a window, and rope_local_base_freq.
void read_gemma_rope(const ConfigReader& json, const LlamaType& of, ModelConfig& config) {
  config.rope_local_theta = json.number("rope_local_base_freq", 1e4);
  if (json.has(kRopeScaling)) read_rope_object(json, json.inside(kRopeScaling), of, config);
  if (!json.has(kRopeParameters)) return;
  json.refuse(kRopeScaling, "rope_parameters has all rotary positions");
  const ConfigReader kinds = json.inside(kRopeParameters);
  kinds.allow({kFullLayer, kWindowedLayer});
  if (kinds.has(kFullLayer)) read_rope_object(json, kinds.inside(kFullLayer), of, config);
  if (!kinds.has(kWindowedLayer)) return;
  const ConfigReader local = kinds.inside(kWindowedLayer);
  read_rope_scaling(json, local, of, read_rope_type(local, false, false), config);
  config.rope_local_theta = local.number("rope_theta", config.rope_local_theta);
}

// Newer files have an object `rope_parameters`, older ones `rope_theta` and perhaps `rope_scaling`.
void read_rope(const ConfigReader& json, const LlamaType& of, ModelConfig& config) {
  demand_whole_heads(json);
  config.rope_theta = json.number("rope_theta", of.theta);
  if (of.local_rope) return read_gemma_rope(json, of, config);
  if (of.query_growth) {  // without both, the class has numbers of its own
    if (json.has(kRopeParameters)) json.refuse(kRopeScaling, "rope_parameters is there, too");
    require(json.has(kRopeParameters) || json.has(kRopeScaling), ErrorCode::unsupported, kOrigin,
            json.label(), " has no rope_parameters");
  }
  for (const char* object : {kRopeScaling, kRopeParameters})
    if (json.has(object)) read_rope_object(json, json.inside(object), of, config);
}

// SmolLM3: a list with 0 for each layer without rotary positions, or else an interval. Of lists,
// only those that an interval makes.
int64_t read_no_rope_interval(const ConfigReader& json, int64_t layers) {
  if (!json.has(kNoRopeLayers)) {
    if (!json.has(kNoRopeInterval)) return 4;
    return json.integer(kNoRopeInterval, 1, limits::kLayers);
  }
  const std::vector<int64_t> rotated = json.integers(kNoRopeLayers, 0, 1);
  require(std::ssize(rotated) == layers, ErrorCode::corrupt_file, kOrigin, json.label(), ": ",
          kNoRopeLayers, " has ", rotated.size(), " numbers, there are ", layers, " layers");
  const auto first = std::find(rotated.begin(), rotated.end(), 0);
  if (first == rotated.end()) return 0;
  const int64_t interval = first - rotated.begin() + 1;
  for (int64_t i = 0; i < layers; ++i)
    require((rotated[static_cast<size_t>(i)] == 0) == ((i + 1) % interval == 0),
            ErrorCode::unsupported, kOrigin, json.label(), ": ", kNoRopeLayers,
            " must have its zeros at equal distances, as every 4th");
  return interval;
}

void read_scales(const ConfigReader& json, ModelConfig& config) {
  const auto factor = [&](const char* key) {
    const double value = json.number(key, 1);
    require(value > 0 && value <= 1e6, ErrorCode::unsupported, kOrigin, json.label(), ": ", key,
            " is ", value, ", it must be above 0 and at most 1e6");
    return value;
  };
  const double of_embeddings = factor("embedding_multiplier");
  if (of_embeddings != 1) config.embedding_scale = of_embeddings;
  config.attention_scale = factor("attention_multiplier");
  config.residual_scale = factor("residual_multiplier");
  config.logits_divisor = factor("logits_scaling");
}

// The window, or 0.
int64_t read_window(const ConfigReader& json, const LlamaType& type) {
  const bool by_flag = type.window == Window::from_a_number || type.window == Window::none_if_used;
  if (by_flag && !json.flag("use_sliding_window", false)) return 0;
  if (json.has(kWindow)) return json.integer(kWindow, 1, int64_t{1} << 40);
  return json.names(kWindow) ? 0 : type.usual_window;
}

// Which layers have the window, by layer_types or else as `usual` says of a layer from 0.
template <class Usual>
std::vector<bool> read_windowed(const ConfigReader& json, int64_t layers, bool has_window,
                                Usual&& usual) {
  std::vector<bool> windowed;
  if (!json.has(kLayerTypes)) {
    for (int64_t i = 0; i < layers; ++i) windowed.push_back(has_window && usual(i));
    return windowed;
  }
  const std::vector<std::string> kinds = json.texts(kLayerTypes);
  require(std::ssize(kinds) == layers, ErrorCode::corrupt_file, kOrigin, json.label(), ": ",
          kLayerTypes, " has ", kinds.size(), " kinds, there are ", layers, " layers");
  for (const std::string& layer : kinds) {
    windowed.push_back(layer == kWindowedLayer);
    require(layer == kFullLayer || (layer == kWindowedLayer && has_window), ErrorCode::unsupported,
            kOrigin, json.label(), ": layer_types has ", layer.substr(0, 64),
            has_window ? "; there are full_attention and sliding_attention"
                       : "; there is full_attention");
  }
  return windowed;
}

// Sets the options of windows: of all layers, or of all but those at equal distances.
void set_windows(const ConfigReader& json, const std::vector<bool>& windowed, int64_t window,
                 ModelConfig& config) {
  const int64_t layers = config.decoder_layers;
  const auto first = std::find(windowed.begin(), windowed.end(), false);
  const int64_t interval = first == windowed.end() ? 0 : first - windowed.begin() + 1;
  for (int64_t i = 0; i < layers; ++i)
    require(windowed[static_cast<size_t>(i)] ==
                (interval == 0 || (interval > 1 && (i + 1) % interval != 0)),
            ErrorCode::unsupported, kOrigin, json.label(), ": ",
            json.has(kLayerTypes) ? kLayerTypes : "max_window_layers",
            " must have layers without a window at equal distances, as every 6th, or none, or all");
  if (interval == 1) return;
  require(window <= limits::kModelDimension, ErrorCode::unsupported, kOrigin, json.label(), ": ",
          kWindow, " is ", window, ", it may be up to ", limits::kModelDimension);
  config.sliding_window = window;
  config.full_attention_interval = interval;
}

// An attention whose window has all positions is the plain one, but in Gemma, where the layers with
// a window have other rotary positions.
void read_windows(const ConfigReader& json, const LlamaType& type, ModelConfig& config) {
  const int64_t window = read_window(json, type), layers = config.decoder_layers;
  const auto windowed_layers = [&](auto&& usual) {
    return read_windowed(json, layers, window > 0, usual);
  };
  const bool hides = window < config.max_positions && window > 0;
  switch (type.window) {
    case Window::none:
    case Window::none_if_used:
      windowed_layers([](int64_t) { return false; });
      require(!hides, ErrorCode::unsupported, kOrigin, json.label(), ": sliding_window is ", window,
              ", below max_position_embeddings (", config.max_positions,
              "); attention of this model_type has no window. With max_position_embeddings ",
              window, " the model can be imported for texts of that length");
      return;
    case Window::all: {
      const std::vector<bool> windowed = windowed_layers([](int64_t) { return true; });
      if (!hides) return;
      require(std::find(windowed.begin(), windowed.end(), false) == windowed.end(),
              ErrorCode::unsupported, kOrigin, json.label(),
              ": layer_types has full_attention; all layers of this model_type have the window");
      return set_windows(json, windowed, window, config);
    }
    case Window::from_a_number: {
      const int64_t first = json.has("max_window_layers")
                                ? json.integer("max_window_layers", 0, int64_t{1} << 31)
                                : 28;
      const std::vector<bool> windowed = windowed_layers([&](int64_t i) { return i >= first; });
      if (hides) set_windows(json, windowed, window, config);
      return;
    }
    case Window::by_interval: {
      require(window > 0, ErrorCode::unsupported, kOrigin, json.label(), ": ", kWindow,
              " is null, this model_type needs a number");
      constexpr const char* kPattern = "sliding_window_pattern";
      const int64_t interval = type.has_pattern && json.has(kPattern)
                                   ? json.integer(kPattern, 1, limits::kLayers)
                                   : type.usual_interval;
      set_windows(json, windowed_layers([&](int64_t i) { return (i + 1) % interval != 0; }), window,
                  config);
      return;
    }
  }
}

// A soft cap, or 0 for null.
double read_cap(const ConfigReader& json, const char* key, double usual) {
  if (!json.has(key)) return json.names(key) ? 0 : usual;
  const double cap = json.number(key);
  require(cap > 0, ErrorCode::corrupt_file, kOrigin, json.label(), ": ", key,
          " must be above 0, or null for none");
  return cap;
}

// After the windows and the rotary positions.
void read_gemma(const ConfigReader& json, const LlamaType& type, ModelConfig& config) {
  json.demand("use_bidirectional_attention", false, false);
  if (type.score_cap == 0)  // Gemma 3 has the key, and its class ignores it
    json.refuse(kScoreCap, "scores of this model_type have no soft cap");
  else
    config.attention_soft_cap = read_cap(json, kScoreCap, type.score_cap);
  config.logits_soft_cap = read_cap(json, kLogitsCap, type.logits_cap);
  config.ffn = FeedForward::geglu;
  config.sandwich_norm = true;
  config.embedding_scale = std::sqrt(static_cast<double>(config.width));
  const double scalar = json.number(kGemmaScale, 256);
  require(scalar > 0, ErrorCode::corrupt_file, kOrigin, json.label(), ": ", kGemmaScale,
          " must be above 0");
  const int64_t head_dim = config.head_width > 0 ? config.head_width : config.width / config.heads;
  if (scalar != static_cast<double>(head_dim)) config.attention_scale = portable_pow(scalar, -0.5);
  if (config.sliding_window == 0) config.rope_local_theta = 0;
}

// Frequencies that old versions saved with every layer.
bool is_frequencies(const TensorInfo& info) {
  return info.name.ends_with(".rotary_emb.inv_freq");
}

// The configuration but for the vocabulary. UNSUPPORTED and CORRUPT_FILE name the key.
ModelConfig read_config(const ConfigReader& json) {
  const LlamaType& type = type_of(json);
  ModelConfig config;
  config.architecture = Architecture::decoder_lm;
  config.norm = Norm::rms;
  config.positions = Positions::rotary;
  config.ffn = FeedForward::swiglu;
  config.biases = false;
  config.qk_norm = type.qk_norm;
  const auto biases = [&](const char* key, bool may_be) {
    if (!may_be) json.demand(key, false, false);
    return json.flag(key, false);
  };
  config.attention_output_bias = biases("attention_bias", type.attention_bias);
  config.qkv_biases = type.qkv_biases || config.attention_output_bias;
  config.ffn_biases = biases("mlp_bias", type.mlp_bias);
  config.max_positions = json.integer(kMaxPositions, 2, limits::kModelDimension);
  config.width = json.integer("hidden_size", 2, limits::kModelDimension);
  config.decoder_layers = json.integer("num_hidden_layers", 1, limits::kLayers);
  read_windows(json, type, config);
  config.heads = json.integer("num_attention_heads", 1, limits::kModelDimension);
  if (!type.kv_heads_may_lack || json.has("num_key_value_heads")) {
    config.kv_heads = json.integer("num_key_value_heads", 1, config.heads);
    if (config.kv_heads == config.heads) config.kv_heads = 0;
  }
  config.head_width =
      json.has("head_dim") ? json.integer("head_dim", 1, limits::kModelDimension) : type.head_width;
  if (config.head_width * config.heads == config.width) config.head_width = 0;
  config.ffn_width = json.integer("intermediate_size", 1, limits::kModelDimension);
  constexpr const char* kGemmaActivation = "hidden_activation";
  if (!type.gemma)
    config.activation = activation_from_name(json, "hidden_act");
  else
    config.activation = json.has(kGemmaActivation) ? activation_from_name(json, kGemmaActivation)
                                                   : Activation::gelu;
  config.norm_epsilon = json.number("rms_norm_eps", type.epsilon);
  read_rope(json, type, config);
  if (type.skips_rope) config.no_rope_interval = read_no_rope_interval(json, config.decoder_layers);
  if (type.scaled) read_scales(json, config);
  config.norm_outputs = type.norm_outputs;
  if (type.gemma) read_gemma(json, type, config);
  config.dropout = 0;
  config.attention_dropout = json.number("attention_dropout", 0);
  config.tied_embeddings = json.flag("tie_word_embeddings", type.tied);
  return config;
}

}  // namespace

const Expressible& hf_llama_expressible() {
  static const Expressible expressible = [] {
    Expressible all{"Llama", {}};
    for (const LlamaClass& each : kClasses) {
      LlamaForm form = each.form;
      form.any_head_width = true;
      const bool grows = std::string_view(form.query_growth) == "*";
      form.rope_scaling = grows ? "yarn yarn+constants" : "*";
      all.forms.push_back(llama_form(form));
    }
    return all;
  }();
  return expressible;
}

void write_llama_files(const ModelSpec& spec, const ExportVocabulary& vocabulary,
                       const fs::path& directory, const Json& quantization) {
  Json json = llama_config(spec, vocabulary);
  if (quantization.as<Json::Object>() != nullptr) json["quantization_config"] = quantization;
  write_json(directory / "config.json", json);
  write_generation(vocabulary, spec, directory);
  write_lm_tokenizer(vocabulary, spec, directory);
}

void write_llama(const HostModel& host, const ExportVocabulary& vocabulary,
                 const fs::path& directory) {
  write_llama_files(host.spec(), vocabulary, directory);
  write_tensors(directory / "model.safetensors", host, llama_tensors(host.config()));
}

ModelConfig read_llama_config(const fs::path& file) {
  const ConfigReader json(file);
  ModelConfig config = read_config(json);
  config.vocabulary = json.integer("vocab_size", 4, limits::kVocabulary);
  return config;
}

Imported read_llama(const fs::path& directory, const ReadTarget& target) {
  const ConfigReader json(directory / "config.json");
  ModelConfig config = read_config(json);
  const int64_t stored = json.integer("vocab_size", 4, limits::kVocabulary);
  ReadTokenizer read = read_lm_tokenizer(directory, json, stored);
  config.vocabulary = read.tokenizer ? read.tokenizer->vocab_size() : stored;
  validate_read(config, json);

  const WeightFiles weights = WeightFiles::open(directory);
  const auto name = [](const MappedTensor& tensor) { return tensor.name; };
  const auto surplus = [&](const TensorInfo& info) {
    return is_frequencies(info) || (config.tied_embeddings && info.name == "lm_head.weight");
  };
  std::vector<MappedTensor> tensors = llama_tensors(config, type_of(json).joined);
  set_stored_vocabulary(tensors, config, stored);
  Imported imported{read_tensors({weights, name, surplus}, config, tensors, target),
                    std::move(read.tokenizer), std::move(read.note)};
  if (config.tied_embeddings) check_copy(weights, "model.embed_tokens.weight", "lm_head.weight");
  return imported;
}

}  // namespace trafo::interop
