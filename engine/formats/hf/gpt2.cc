// The GPT2LMHeadModel directory of transformers: pre-norm, learned positions, biases everywhere but
// in the output projection. If the model has an output bias, fold_output_bias moves it into the
// output matrix, which is then stored beside the embeddings.
#include <utility>

#include "engine/formats/formats.h"
#include "engine/formats/hf/directory.h"
#include "engine/formats/hf/lm_files.h"

namespace trafo::interop {
namespace {

namespace fs = std::filesystem;

Json gpt2_config(const ModelSpec& spec, const ExportVocabulary& vocabulary) {
  const StackSpec& decoder = spec.decoder;
  Json json;
  json["architectures"] = Json::List{"GPT2LMHeadModel"};
  json["model_type"] = "gpt2";
  json["vocab_size"] = spec.vocabulary;
  json["n_positions"] = spec.max_positions;
  json["n_embd"] = decoder.width;
  json["n_layer"] = decoder.layers();
  json["n_head"] = decoder.attention.heads;
  json["n_inner"] = decoder.feed_forward.width;
  json["activation_function"] = activation_to_name(decoder.feed_forward.activation);
  json["layer_norm_epsilon"] = decoder.norm.epsilon;
  json["embd_pdrop"] = spec.embedding.dropout;
  json["resid_pdrop"] = decoder.dropout;
  json["attn_pdrop"] = decoder.attention.dropout;
  json["scale_attn_weights"] = true;
  json["scale_attn_by_inverse_layer_idx"] = false;
  json["reorder_and_upcast_attn"] = false;
  json["add_cross_attention"] = false;
  json["tie_word_embeddings"] = spec.output.tied;
  json["use_cache"] = true;
  put_special_ids(vocabulary.tokens, json);
  put_type_and_version(json);
  return json;
}

// GPT-2 files of the hub name tensors without "transformer."; fine-tuned ones with it.
std::string stored_name(const WeightFiles& weights, const std::string& name) {
  constexpr std::string_view kPrefix = "transformer.";
  if (weights.has("transformer.wte.weight") || !name.starts_with(kPrefix)) return name;
  return name.substr(kPrefix.size());
}

// Causal masks that old versions saved with every layer.
bool is_mask(const TensorInfo& info) {
  return info.name.ends_with(".attn.bias") || info.name.ends_with(".attn.masked_bias");
}

}  // namespace

const Expressible& hf_gpt2_expressible() {
  static const Expressible expressible{"GPT-2",
                                       {{{"architecture", "decoder-lm"},
                                         {"positions", "learned"},
                                         {"activation", "*"},
                                         {"embeddings", "*"},
                                         {"norm_epsilon", "*"},
                                         {"output_bias", "*"}}}};
  return expressible;
}

void write_gpt2_files(const ModelSpec& spec, const ExportVocabulary& vocabulary,
                      const fs::path& directory) {
  write_json(directory / "config.json", gpt2_config(spec, vocabulary));
  write_generation(vocabulary, spec, directory);
  write_lm_tokenizer(vocabulary, spec, directory);
}

void write_gpt2(const HostModel& given, const ExportVocabulary& vocabulary,
                const fs::path& directory) {
  const bool fold = has_output_bias(given);
  const HostModel folded = fold ? fold_output_bias(given, directory) : HostModel{};
  const HostModel& host = fold ? folded : given;
  write_gpt2_files(host.spec(), vocabulary, directory);
  write_tensors(directory / "model.safetensors", host, gpt2_tensors(host.config()));
}

Imported read_gpt2(const fs::path& directory, const ReadTarget& target) {
  const ConfigReader json(directory / "config.json");
  for (const auto& [other, field] : {std::pair{"hidden_size", "n_embd"},
                                     {"max_position_embeddings", "n_positions"},
                                     {"num_attention_heads", "n_head"},
                                     {"num_hidden_layers", "n_layer"}})
    json.demand_same(other, field);
  json.demand("scale_attn_weights", true, true);
  json.demand("scale_attn_by_inverse_layer_idx", false, false);
  json.demand("add_cross_attention", false, false);
  ModelConfig config;
  config.architecture = Architecture::decoder_lm;
  const int64_t stored = json.integer("vocab_size", 4, limits::kVocabulary);
  config.max_positions = json.integer("n_positions", 2, limits::kModelDimension);
  config.width = json.integer("n_embd", 2, limits::kModelDimension);
  config.decoder_layers = json.integer("n_layer", 1, limits::kLayers);
  config.heads = json.integer("n_head", 1, limits::kModelDimension);
  config.ffn_width =
      json.has("n_inner") ? json.integer("n_inner", 1, limits::kModelDimension) : 4 * config.width;
  config.activation = activation_from_name(json, "activation_function");
  config.norm_epsilon = json.number("layer_norm_epsilon", 1e-5);
  config.dropout = json.number("resid_pdrop", 0.1);
  config.attention_dropout = json.number("attn_pdrop", 0.1);
  config.tied_embeddings = json.flag("tie_word_embeddings", true);
  config.pre_norm = true;
  config.output_bias = false;
  ReadTokenizer read = read_lm_tokenizer(directory, json, stored);
  config.vocabulary = read.tokenizer ? read.tokenizer->vocab_size() : stored;
  validate_read(config, json);

  const WeightFiles weights = WeightFiles::open(directory);
  const auto name = [&](const MappedTensor& tensor) { return stored_name(weights, tensor.name); };
  const auto surplus = [&](const TensorInfo& info) {
    return is_mask(info) || (config.tied_embeddings && info.name == "lm_head.weight");
  };
  std::vector<MappedTensor> tensors = gpt2_tensors(config);
  set_stored_vocabulary(tensors, config, stored);
  Imported imported{read_tensors({weights, name, surplus}, config, tensors, target),
                    std::move(read.tokenizer), std::move(read.note)};
  if (config.tied_embeddings)
    check_copy(weights, stored_name(weights, "transformer.wte.weight"), "lm_head.weight");
  return imported;
}

}  // namespace trafo::interop
