// Directories of transformers for LlamaForCausalLM and the models of its form: pre-norm, RMS norm,
// rotary positions over the halves of a head, SwiGLU, grouped-query attention. Mistral differs in
// names and in a window of its attention, Qwen2 in biases of queries, keys and values.
#include "engine/formats/formats.h"
#include "engine/formats/hf/directory.h"
#include "engine/formats/hf/lm_files.h"

namespace trafo::interop {
namespace {

namespace fs = std::filesystem;

// A class of transformers, which has biases in these matrices.
struct LlamaClass {
  const char* architecture;
  const char* model_type;
  const char* biases;
};
constexpr LlamaClass kClasses[] = {{"LlamaForCausalLM", "llama", "none ffn qkv+output all"},
                                   {"Qwen2ForCausalLM", "qwen2", "qkv"}};

Json rope_json(const RotaryAngles& angles) {
  if (angles.factor == 1) return nullptr;
  Json json;
  json["factor"] = angles.factor;
  if (angles.original_positions == 0) {
    json["rope_type"] = "linear";
    return json;
  }
  json["rope_type"] = "llama3";
  json["low_freq_factor"] = angles.low_turns;
  json["high_freq_factor"] = angles.high_turns;
  json["original_max_position_embeddings"] = angles.original_positions;
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
  if (its_class.model_type == std::string_view("qwen2")) {
    json["use_sliding_window"] = false;
  } else {
    json["attention_bias"] = attention.qkv_bias;
    json["mlp_bias"] = decoder.feed_forward.bias;
    json["pretraining_tp"] = 1;
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

const Expressible& hf_llama_expressible() {
  static const Expressible expressible = [] {
    Expressible all{"Llama", {}};
    for (const LlamaClass& each : kClasses)
      all.forms.push_back(
          llama_form({{"biases", each.biases}, {"head_width", "*"}, {"rope_scaling", "*"}}));
    return all;
  }();
  return expressible;
}

void write_llama_files(const ModelSpec& spec, const ExportVocabulary& vocabulary,
                       const fs::path& directory, const Json& quantization) {
  Json json = llama_config(spec, vocabulary);
  if (quantization.as<Json::Object>() != nullptr) json["quantization_config"] = quantization;
  write_json(directory / "config.json", json);
  write_generation(vocabulary.tokens, spec, directory);
  write_lm_tokenizer(vocabulary.tokenizer, spec, directory);
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
