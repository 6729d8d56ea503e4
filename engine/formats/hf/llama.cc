// Directories of transformers for LlamaForCausalLM and the models of its form: pre-norm, RMS norm,
// rotary positions over the halves of a head, SwiGLU, grouped-query attention. Mistral differs in
// names and in a window of its attention, Qwen2 in biases of queries, keys and values, Qwen3 and
// Hunyuan in norms of queries and keys, Phi-3 in joined matrices, SmolLM3 in layers without rotary
// positions, Granite in four factors, OLMo 2 in norms of queries and keys and of outputs.
#include <algorithm>
#include <cmath>

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
    {"Qwen2ForCausalLM", "qwen2", {.biases = "qkv"}},
    {"Qwen3ForCausalLM", "qwen3", {.biases = kSomeBiases, .qk_norm = QkNorm::head}},
    {"HunYuanDenseV1ForCausalLM",
     "hunyuan_v1_dense",
     {.biases = kSomeBiases, .qk_norm = QkNorm::head_after_rotary}},
    {"SmolLM3ForCausalLM", "smollm3", {.biases = kAnyBiases, .no_rope_interval = "*"}},
    {"GraniteForCausalLM", "granite", {.biases = kAnyBiases, .scaled = true}},
    {"Olmo2ForCausalLM",
     "olmo2",
     {.biases = kSomeBiases, .qk_norm = QkNorm::whole, .norms = NormPlacement::on_output}}};

// Of an attention with a window: whether `sliding_window` says so, or use_sliding_window.
enum class Window : uint8_t { where_it_is, where_it_is_used };

// A model_type: what its configuration may say, and what it means.
struct LlamaType {
  const char* name;
  Window window = Window::where_it_is;            // caches of transformers ask every class for it
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
};
constexpr LlamaType kTypes[] = {
    {.name = "llama", .attention_bias = true, .mlp_bias = true},
    {.name = "mistral", .kv_heads_may_lack = false},
    {.name = "qwen2",
     .window = Window::where_it_is_used,
     .qkv_biases = true,
     .kv_heads_may_lack = false},
    {.name = "qwen3",
     .window = Window::where_it_is_used,
     .attention_bias = true,
     .qk_norm = QkNorm::head,
     .kv_heads_may_lack = false,
     .head_width = 128},
    {.name = "hunyuan_v1_dense",
     .attention_bias = true,
     .qk_norm = QkNorm::head_after_rotary,
     .epsilon = 1e-5},
    {.name = "phi3", .epsilon = 1e-5, .stretches = false, .joined = true},
    {.name = "smollm3",
     .window = Window::where_it_is_used,
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
     .norm_outputs = true}};

const LlamaType& type_of(const ConfigReader& json) {
  const std::string name = json.text("model_type");
  for (const LlamaType& type : kTypes)
    if (name == type.name) return type;
  fail(ErrorCode::internal, kOrigin, json.label(), ": model_type ", name, " is not of this form");
}

constexpr const char *kNoRopeLayers = "no_rope_layers", *kNoRopeInterval = "no_rope_layer_interval";
constexpr const char* kOriginal = "original_max_position_embeddings";

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
    return json;
  }
  json["rope_type"] = "llama3";
  json["low_freq_factor"] = angles.low_turns;
  json["high_freq_factor"] = angles.high_turns;
  json[kOriginal] = angles.original_positions;
  return json;
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
  json["max_position_embeddings"] = spec.max_positions;
  json["hidden_size"] = decoder.width;
  json["intermediate_size"] = decoder.feed_forward.width;
  json["num_hidden_layers"] = decoder.layers();
  json["num_attention_heads"] = attention.heads;
  json["num_key_value_heads"] = attention.key_heads;
  json["head_dim"] = attention.head_dim;
  const Activation activation = decoder.feed_forward.activation;
  json["hidden_act"] = activation == Activation::silu ? "silu" : activation_to_name(activation);
  json["rms_norm_eps"] = decoder.norm.epsilon;
  json["rope_theta"] = angles.theta;
  json["rope_scaling"] = rope_json(angles);
  json["attention_dropout"] = attention.dropout;
  const std::string_view type = its_class.model_type;
  if (type != "qwen2") json["attention_bias"] = attention.qkv_bias;
  if (type == "llama" || type == "smollm3" || type == "granite")
    json["mlp_bias"] = decoder.feed_forward.bias;
  if (type == "llama") json["pretraining_tp"] = 1;
  if (type == "qwen2" || type == "qwen3" || type == "smollm3") json["use_sliding_window"] = false;
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
  json["torch_dtype"] = "float32";
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

// The scaling that `rope` describes. The keys of its type are allowed and no others.
void read_rope_scaling(const ConfigReader& json, const ConfigReader& rope, const std::string& type,
                       ModelConfig& config) {
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
                "truncate"});
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
  config.rope_theta *= std::pow(alpha, width / (width - 2));
}

// Newer files have an object `rope_parameters`, older ones `rope_theta` and perhaps `rope_scaling`.
void read_rope(const ConfigReader& json, const LlamaType& of, ModelConfig& config) {
  demand_whole_heads(json);
  config.rope_theta = json.number("rope_theta", of.theta);
  for (const char* object : {"rope_scaling", "rope_parameters"}) {
    if (!json.has(object)) continue;
    const ConfigReader rope = json.inside(object);
    std::string type = "default";
    for (const char* field : {"type", "rope_type"}) {
      if (!rope.has(field)) continue;
      type = rope.text(field);
      if (type == "dynamic" && of.qk_norm == QkNorm::head_after_rotary && rope.has("alpha"))
        continue;
      require(type == "default" ||
                  (of.stretches && (type == "linear" || type == "llama3" || type == "yarn")),
              ErrorCode::unsupported, kOrigin, rope.label(), ": ", field, " is ",
              type.substr(0, 64),
              of.stretches ? "; there are default, linear, llama3 and yarn" : "; there is default");
    }
    demand_whole_heads(rope);
    config.rope_theta = rope.number("rope_theta", config.rope_theta);
    if (type == "dynamic")
      read_alpha(rope, config);
    else
      read_rope_scaling(json, rope, type, config);
  }
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

// An attention whose window has all positions is the plain one.
void check_window(const ConfigReader& json, Window window_of, int64_t positions) {
  const bool is_used = window_of == Window::where_it_is || json.flag("use_sliding_window", false);
  const bool has_window = is_used && json.has("sliding_window");
  if (json.has("layer_types"))
    for (const std::string& layer : json.texts("layer_types"))
      require(layer == "full_attention" || (layer == "sliding_attention" && has_window),
              ErrorCode::unsupported, kOrigin, json.label(), ": layer_types has ",
              layer.substr(0, 64), "; there is full_attention");
  if (!has_window) return;
  const int64_t window = json.integer("sliding_window", 1, int64_t{1} << 40);
  require(window >= positions, ErrorCode::unsupported, kOrigin, json.label(),
          ": sliding_window is ", window, ", below max_position_embeddings (", positions,
          "); attention here has no window. With max_position_embeddings ", window,
          " the model can be imported for texts of that length");
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
  config.max_positions = json.integer("max_position_embeddings", 2, limits::kModelDimension);
  check_window(json, type.window, config.max_positions);
  config.width = json.integer("hidden_size", 2, limits::kModelDimension);
  config.decoder_layers = json.integer("num_hidden_layers", 1, limits::kLayers);
  config.heads = json.integer("num_attention_heads", 1, limits::kModelDimension);
  if (!type.kv_heads_may_lack || json.has("num_key_value_heads")) {
    config.kv_heads = json.integer("num_key_value_heads", 1, config.heads);
    if (config.kv_heads == config.heads) config.kv_heads = 0;
  }
  config.head_width =
      json.has("head_dim") ? json.integer("head_dim", 1, limits::kModelDimension) : type.head_width;
  if (config.head_width * config.heads == config.width) config.head_width = 0;
  config.ffn_width = json.integer("intermediate_size", 1, limits::kModelDimension);
  config.activation = activation_from_name(json, "hidden_act");
  config.norm_epsilon = json.number("rms_norm_eps", type.epsilon);
  read_rope(json, type, config);
  if (type.skips_rope) config.no_rope_interval = read_no_rope_interval(json, config.decoder_layers);
  if (type.scaled) read_scales(json, config);
  config.norm_outputs = type.norm_outputs;
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
      form.rope_scaling = "*";
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

Imported read_llama(const fs::path& directory) {
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
  Imported imported{read_tensors({weights, name, surplus}, config, tensors),
                    std::move(read.tokenizer), std::move(read.note)};
  if (config.tied_embeddings) check_copy(weights, "model.embed_tokens.weight", "lm_head.weight");
  return imported;
}

}  // namespace trafo::interop
