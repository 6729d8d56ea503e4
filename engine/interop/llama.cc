// The LlamaForCausalLM directory of transformers: pre-norm, RMS norm, rotary positions over the
// halves of a head, SwiGLU, no biases, grouped-query attention.
#include "engine/interop/directory.h"
#include "engine/interop/formats.h"
#include "engine/interop/lm_files.h"

namespace trafo::interop {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFormat = "Llama";

void check_expressible(const ModelConfig& config) {
  require_architecture(kFormat, config, {Architecture::decoder_lm}, "hf-marian or ctranslate2");
  require_llama_form(kFormat, config);
}

Json config_json(const ModelConfig& config, const Tokenizer& tokenizer) {
  Json json;
  json["architectures"] = Json::List{"LlamaForCausalLM"};
  json["model_type"] = "llama";
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
  json["rope_scaling"] = nullptr;
  json["attention_bias"] = false;
  json["attention_dropout"] = config.attention_dropout;
  json["mlp_bias"] = false;
  json["pretraining_tp"] = 1;
  json["tie_word_embeddings"] = config.tied_embeddings;
  json["use_cache"] = true;
  put_special_ids(tokenizer, json);
  json["torch_dtype"] = "float32";
  return json;
}

// Newer files have an object `rope_parameters`, older ones `rope_theta` and perhaps `rope_scaling`.
double rope_theta_of(const ConfigReader& json) {
  const auto demand_whole = [](const ConfigReader& reader) {
    const double share = reader.number("partial_rotary_factor", 1);
    require(share == 1, ErrorCode::unsupported, kOrigin, reader.label(),
            ": partial_rotary_factor is ", share, ", rotary positions here turn whole heads");
  };
  demand_whole(json);
  double theta = json.number("rope_theta", 1e4);
  for (const char* object : {"rope_scaling", "rope_parameters"}) {
    if (!json.has(object)) continue;
    const ConfigReader rope = json.inside(object);
    for (const char* field : {"rope_type", "type"}) {
      if (!rope.has(field)) continue;
      const std::string type = rope.text(field);
      require(type == "default", ErrorCode::unsupported, kOrigin, rope.label(), ": ", field, " is ",
              type.substr(0, 64), ", rotary positions here are not scaled");
    }
    demand_whole(rope);
    rope.allow({"rope_type", "type", "rope_theta", "partial_rotary_factor"});
    theta = rope.number("rope_theta", theta);
  }
  return theta;
}

// Frequencies that old versions saved with every layer.
bool is_frequencies(const TensorInfo& info) {
  return info.name.ends_with(".rotary_emb.inv_freq");
}

}  // namespace

void write_llama_files(const ModelConfig& config, const Tokenizer& tokenizer,
                       const fs::path& directory) {
  write_json(directory / "config.json", config_json(config, tokenizer));
  write_generation(tokenizer, config, directory);
  write_lm_tokenizer(tokenizer, config, directory);
}

void write_llama(const HostModel& host, const Tokenizer& tokenizer, const fs::path& directory) {
  check_expressible(host.config());
  write_llama_files(host.config(), tokenizer, directory);
  write_tensors(directory / "model.safetensors", host, llama_tensors(host.config()));
}

Imported read_llama(const fs::path& directory) {
  const ConfigReader json(directory / "config.json");
  json.demand("attention_bias", false, false);
  json.demand("mlp_bias", false, false);
  ModelConfig config;
  config.architecture = Architecture::decoder_lm;
  config.norm = Norm::rms;
  config.positions = Positions::rotary;
  config.ffn = FeedForward::swiglu;
  config.biases = false;
  config.vocabulary = json.integer("vocab_size", 4, limits::kVocabulary);
  config.max_positions = json.integer("max_position_embeddings", 2, limits::kModelDimension);
  config.width = json.integer("hidden_size", 2, limits::kModelDimension);
  config.decoder_layers = json.integer("num_hidden_layers", 1, limits::kLayers);
  config.heads = json.integer("num_attention_heads", 1, limits::kModelDimension);
  if (json.has("num_key_value_heads")) {
    config.kv_heads = json.integer("num_key_value_heads", 1, config.heads);
    if (config.kv_heads == config.heads) config.kv_heads = 0;
  }
  config.ffn_width = json.integer("intermediate_size", 1, limits::kModelDimension);
  config.activation = activation_from_name(json, "hidden_act");
  config.norm_epsilon = json.number("rms_norm_eps", 1e-6);
  config.rope_theta = rope_theta_of(json);
  config.dropout = 0;
  config.attention_dropout = json.number("attention_dropout", 0);
  config.tied_embeddings = json.flag("tie_word_embeddings", false);
  try {
    validate(config);
  } catch (const Error& error) {
    fail(ErrorCode::corrupt_file, kOrigin, json.label(), ": ", error.message());
  }
  if (json.has("head_dim"))
    require(json.integer("head_dim", 1, limits::kModelDimension) == config.head_dim(),
            ErrorCode::unsupported, kOrigin, json.label(),
            ": head_dim is not hidden_size / num_attention_heads (", config.head_dim(),
            "), as it is in models here");

  const SafetensorsReader reader = open_weights(directory);
  const auto name = [](const MappedTensor& tensor) { return tensor.name; };
  const auto surplus = [&](const TensorInfo& info) {
    return is_frequencies(info) || (config.tied_embeddings && info.name == "lm_head.weight");
  };
  Imported imported{read_tensors({reader, name, surplus}, config, llama_tensors(config)), {}, {}};
  if (config.tied_embeddings) check_copy(reader, "model.embed_tokens.weight", "lm_head.weight");
  read_lm_tokenizer(directory, config, imported);
  return imported;
}

}  // namespace trafo::interop
