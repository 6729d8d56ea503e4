// Directories of transformers for LlamaForCausalLM and the models of its form: pre-norm, RMS norm,
// rotary positions over the halves of a head, SwiGLU, grouped-query attention. Mistral differs in
// names and in a window of its attention, Qwen2 in biases of queries, keys and values, Qwen3 in
// norms of queries and keys.
#include "engine/formats/formats.h"
#include "engine/formats/hf/directory.h"
#include "engine/formats/hf/lm_files.h"

namespace trafo::interop {
namespace {

namespace fs = std::filesystem;

// A class of transformers: the matrices in which it has biases, and its norm of queries and keys.
struct LlamaClass {
  const char* architecture;
  const char* model_type;
  const char* biases;
  const char* qk_norm;
};
constexpr LlamaClass kClasses[] = {{"LlamaForCausalLM", "llama", "none ffn qkv+output all", "none"},
                                   {"Qwen2ForCausalLM", "qwen2", "qkv", "none"},
                                   {"Qwen3ForCausalLM", "qwen3", "none qkv+output", "head"}};

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
  if (type == "llama") {
    json["mlp_bias"] = decoder.feed_forward.bias;
    json["pretraining_tp"] = 1;
  } else {
    json["use_sliding_window"] = false;
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

// Newer files have an object `rope_parameters`, older ones `rope_theta` and perhaps `rope_scaling`.
void read_rope(const ConfigReader& json, ModelConfig& config) {
  demand_whole_heads(json);
  config.rope_theta = json.number("rope_theta", 1e4);
  for (const char* object : {"rope_scaling", "rope_parameters"}) {
    if (!json.has(object)) continue;
    const ConfigReader rope = json.inside(object);
    std::string type = "default";
    for (const char* field : {"type", "rope_type"}) {
      if (!rope.has(field)) continue;
      type = rope.text(field);
      require(type == "default" || type == "linear" || type == "llama3" || type == "yarn",
              ErrorCode::unsupported, kOrigin, rope.label(), ": ", field, " is ",
              type.substr(0, 64), "; there are default, linear, llama3 and yarn");
    }
    demand_whole_heads(rope);
    read_rope_scaling(json, rope, type, config);
    config.rope_theta = rope.number("rope_theta", config.rope_theta);
  }
}

// An attention whose window has all positions is the plain one.
void check_window(const ConfigReader& json, const std::string& type, int64_t positions) {
  const bool qwen = type == "qwen2" || type == "qwen3";
  const bool is_used = type == "mistral" || (qwen && json.flag("use_sliding_window", false));
  const bool has_window = is_used && json.has("sliding_window");
  if (qwen && json.has("layer_types"))
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
ModelConfig read_config(const ConfigReader& json, const std::string& type) {
  ModelConfig config;
  config.architecture = Architecture::decoder_lm;
  config.norm = Norm::rms;
  config.positions = Positions::rotary;
  config.ffn = FeedForward::swiglu;
  config.biases = false;
  config.qk_norm = type == "qwen3" ? QkNorm::head : QkNorm::none;
  config.qkv_biases = type == "qwen2";
  if (type == "llama" || type == "qwen3")
    config.qkv_biases = config.attention_output_bias = json.flag("attention_bias", false);
  else
    json.demand("attention_bias", false, false);
  if (type == "llama")
    config.ffn_biases = json.flag("mlp_bias", false);
  else
    json.demand("mlp_bias", false, false);
  config.max_positions = json.integer("max_position_embeddings", 2, limits::kModelDimension);
  check_window(json, type, config.max_positions);
  config.width = json.integer("hidden_size", 2, limits::kModelDimension);
  config.decoder_layers = json.integer("num_hidden_layers", 1, limits::kLayers);
  config.heads = json.integer("num_attention_heads", 1, limits::kModelDimension);
  // Llama's default is as many as heads. The others have a number of their own as the default.
  if (type != "llama" || json.has("num_key_value_heads")) {
    config.kv_heads = json.integer("num_key_value_heads", 1, config.heads);
    if (config.kv_heads == config.heads) config.kv_heads = 0;
  }
  constexpr int64_t kQwen3Width = 128;  // of a head, where the file has none
  if (json.has("head_dim"))
    config.head_width = json.integer("head_dim", 1, limits::kModelDimension);
  else if (type == "qwen3")
    config.head_width = kQwen3Width;
  if (config.head_width * config.heads == config.width) config.head_width = 0;
  config.ffn_width = json.integer("intermediate_size", 1, limits::kModelDimension);
  config.activation = activation_from_name(json, "hidden_act");
  config.norm_epsilon = json.number("rms_norm_eps", 1e-6);
  read_rope(json, config);
  config.dropout = 0;
  config.attention_dropout = json.number("attention_dropout", 0);
  config.tied_embeddings = json.flag("tie_word_embeddings", false);
  return config;
}

}  // namespace

const Expressible& hf_llama_expressible() {
  static const Expressible expressible = [] {
    Expressible all{"Llama", {}};
    for (const LlamaClass& each : kClasses)
      all.forms.push_back(llama_form({{"biases", each.biases},
                                      {"qk_norm", each.qk_norm},
                                      {"head_width", "*"},
                                      {"rope_scaling", "*"}}));
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
  ModelConfig config = read_config(json, json.text("model_type"));
  config.vocabulary = json.integer("vocab_size", 4, limits::kVocabulary);
  return config;
}

Imported read_llama(const fs::path& directory) {
  const ConfigReader json(directory / "config.json");
  ModelConfig config = read_config(json, json.text("model_type"));
  const int64_t stored = json.integer("vocab_size", 4, limits::kVocabulary);
  ReadTokenizer read = read_lm_tokenizer(directory, json, stored);
  config.vocabulary = read.tokenizer ? read.tokenizer->vocab_size() : stored;
  validate_read(config, json);

  const WeightFiles weights = WeightFiles::open(directory);
  const auto name = [](const MappedTensor& tensor) { return tensor.name; };
  const auto surplus = [&](const TensorInfo& info) {
    return is_frequencies(info) || (config.tied_embeddings && info.name == "lm_head.weight");
  };
  std::vector<MappedTensor> tensors = llama_tensors(config);
  set_stored_vocabulary(tensors, config, stored);
  Imported imported{read_tensors({weights, name, surplus}, config, tensors),
                    std::move(read.tokenizer), std::move(read.note)};
  if (config.tied_embeddings) check_copy(weights, "model.embed_tokens.weight", "lm_head.weight");
  return imported;
}

}  // namespace trafo::interop
