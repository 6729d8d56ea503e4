// Directories of transformers for LlamaForCausalLM and the models of its form: pre-norm, RMS norm,
// rotary positions over the halves of a head, SwiGLU, grouped-query attention. Mistral differs in
// names and in a window of its attention, Qwen2 in biases of queries, keys and values.
#include "engine/formats/formats.h"
#include "engine/formats/hf/directory.h"
#include "engine/formats/hf/lm_files.h"

namespace trafo::interop {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLlamaFormat = "Llama";

// Qwen2 has biases of queries, keys and values and no others; Llama's attention_bias means those
// and the output's.
bool is_qwen2(const ModelConfig& config) {
  return config.has_qkv_biases() && !config.has_attention_output_bias() && !config.has_ffn_biases();
}

Json rope_json(const ModelConfig& config) {
  if (config.rope_factor == 1) return nullptr;
  Json json;
  json["factor"] = config.rope_factor;
  if (config.rope_original_positions == 0) {
    json["rope_type"] = "linear";
    return json;
  }
  json["rope_type"] = "llama3";
  json["low_freq_factor"] = config.rope_low_turns;
  json["high_freq_factor"] = config.rope_high_turns;
  json["original_max_position_embeddings"] = config.rope_original_positions;
  return json;
}

Json llama_config(const ModelConfig& config, const Tokenizer& tokenizer) {
  Json json;
  json["architectures"] = Json::List{is_qwen2(config) ? "Qwen2ForCausalLM" : "LlamaForCausalLM"};
  json["model_type"] = is_qwen2(config) ? "qwen2" : "llama";
  json["vocab_size"] = config.vocabulary;
  json["max_position_embeddings"] = config.max_positions;
  json["hidden_size"] = config.width;
  json["intermediate_size"] = config.ffn_width;
  json["num_hidden_layers"] = config.decoder_layers;
  json["num_attention_heads"] = config.heads;
  json["num_key_value_heads"] = config.key_heads();
  json["head_dim"] = config.head_dim();
  json["hidden_act"] =
      config.activation == Activation::silu ? "silu" : activation_to_name(config.activation);
  json["rms_norm_eps"] = config.norm_epsilon;
  json["rope_theta"] = config.rope_theta;
  json["rope_scaling"] = rope_json(config);
  json["attention_dropout"] = config.attention_dropout;
  if (is_qwen2(config)) {
    json["use_sliding_window"] = false;
  } else {
    json["attention_bias"] = config.has_qkv_biases();
    json["mlp_bias"] = config.has_ffn_biases();
    json["pretraining_tp"] = 1;
  }
  json["tie_word_embeddings"] = config.tied_embeddings;
  json["use_cache"] = true;
  put_special_ids(tokenizer, json);
  json["torch_dtype"] = "float32";
  return json;
}

void demand_whole_heads(const ConfigReader& reader) {
  const double share = reader.number("partial_rotary_factor", 1);
  require(share == 1, ErrorCode::unsupported, kOrigin, reader.label(),
          ": partial_rotary_factor is ", share, ", rotary positions here turn whole heads");
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
  rope.allow({"rope_type", "type", "rope_theta", "partial_rotary_factor", "factor",
              "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"});
  config.rope_low_turns = rope.number("low_freq_factor");
  config.rope_high_turns = rope.number("high_freq_factor");
  require(config.rope_low_turns > 0 && config.rope_low_turns < config.rope_high_turns,
          ErrorCode::corrupt_file, kOrigin, rope.label(),
          ": low_freq_factor must be above 0 and below high_freq_factor");
  constexpr const char* kOriginal = "original_max_position_embeddings";
  config.rope_original_positions =
      (rope.has(kOriginal) ? rope : json).integer(kOriginal, 1, limits::kModelDimension);
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
      require(type == "default" || type == "linear" || type == "llama3", ErrorCode::unsupported,
              kOrigin, rope.label(), ": ", field, " is ", type.substr(0, 64),
              "; there are default, linear and llama3");
    }
    demand_whole_heads(rope);
    read_rope_scaling(json, rope, type, config);
    config.rope_theta = rope.number("rope_theta", config.rope_theta);
  }
}

// An attention whose window has all positions is the plain one.
void check_window(const ConfigReader& json, const std::string& type, int64_t positions) {
  const bool is_used =
      type == "mistral" || (type == "qwen2" && json.flag("use_sliding_window", false));
  if (!is_used || !json.has("sliding_window")) return;
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
  config.qkv_biases = type == "qwen2";
  if (type == "llama") {
    config.qkv_biases = config.attention_output_bias = json.flag("attention_bias", false);
    config.ffn_biases = json.flag("mlp_bias", false);
  } else {
    json.demand("attention_bias", false, false);
    json.demand("mlp_bias", false, false);
  }
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
  if (json.has("head_dim")) {
    config.head_width = json.integer("head_dim", 1, limits::kModelDimension);
    if (config.head_width * config.heads == config.width) config.head_width = 0;
  }
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

void require_hf_llama(const char* format, const ModelConfig& config) {
  require_architecture(format, config, {Architecture::decoder_lm},
                       formats_of_translation_models(config));
  require_llama_form(format, config);
  if (config.has_qkv_biases() != config.has_attention_output_bias() && !is_qwen2(config))
    cannot_express(format, "attention_output_bias without qkv_biases, or these with ffn_biases");
  allow_settings(
      format, config,
      {"activation", "tied_embeddings", "norm_epsilon", "norm", "positions", "ffn", "biases",
       "kv_heads", "rope_theta", "head_width", "qkv_biases", "attention_output_bias", "ffn_biases",
       "rope_factor", "rope_original_positions", "rope_low_turns", "rope_high_turns"});
}

void write_llama_files(const ModelConfig& config, const Tokenizer& tokenizer,
                       const fs::path& directory, const Json& quantization) {
  Json json = llama_config(config, tokenizer);
  if (quantization.as<Json::Object>() != nullptr) json["quantization_config"] = quantization;
  write_json(directory / "config.json", json);
  write_generation(tokenizer, config, directory);
  write_lm_tokenizer(tokenizer, config, directory);
}

void write_llama_files(const ModelConfig& config, const Tokenizer& tokenizer,
                       const fs::path& directory) {
  write_llama_files(config, tokenizer, directory, nullptr);
}

void write_llama(const HostModel& host, const Tokenizer& tokenizer, const fs::path& directory) {
  require_hf_llama(kLlamaFormat, host.config());
  write_llama_files(host.config(), tokenizer, directory);
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
