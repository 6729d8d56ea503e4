// The architecture "gpt2" of llama.cpp: GPT2LMHeadModel. An output bias has been moved into the
// output matrix (fold_output_bias). Matrices are [out, in], unlike GPT-2's own.
#include <map>
#include <utility>

#include "engine/formats/gguf/gguf_family.h"

namespace trafo::interop {
namespace {

// "transformer.h.3.mlp.c_fc.weight" is "blk.3.ffn_up.weight".
std::string gguf_name_of_gpt2(std::string_view name) {
  static const std::map<std::string_view, const char*> kNames = {
      {"wte", "token_embd"},      {"wpe", "position_embd"},       {"ln_f", "output_norm"},
      {"lm_head", "output"},      {"ln_1", "attn_norm"},          {"attn.c_attn", "attn_qkv"},
      {"ln_2", "ffn_norm"},       {"attn.c_proj", "attn_output"}, {"mlp.c_fc", "ffn_up"},
      {"mlp.c_proj", "ffn_down"},
  };
  constexpr std::string_view kModel = "transformer.", kLayers = "h.";
  if (name.starts_with(kModel)) name.remove_prefix(kModel.size());
  std::string layer;
  if (name.starts_with(kLayers)) {
    name.remove_prefix(kLayers.size());
    const size_t dot = name.find('.');
    layer = concat("blk.", name.substr(0, dot), ".");
    name.remove_prefix(dot + 1);
  }
  const size_t kind = name.rfind('.');
  return concat(layer, kNames.at(name.substr(0, kind)), name.substr(kind));
}

std::vector<GgufPlaced> gpt2_placed(const ModelConfig& config, const ModelSpec&, std::string_view) {
  std::vector<GgufPlaced> placed;
  for (MappedTensor& tensor : gpt2_tensors(config)) {
    std::string name = gguf_name_of_gpt2(tensor.name);
    if (std::exchange(tensor.transposed, false)) std::swap(tensor.shape[0], tensor.shape[1]);
    const bool is_table = name == "position_embd.weight";
    placed.push_back({.name = std::move(name), .ours = std::move(tensor), .is_float32 = is_table});
  }
  return placed;
}

void add_gpt2_keys(const ModelSpec& spec, std::string_view, const AddGgufKey& add) {
  add("attention.layer_norm_epsilon", static_cast<float>(spec.decoder.norm.epsilon));
}

void describe_gpt2(const GgufKeys& keys, ModelConfig& config) {
  config.architecture = Architecture::decoder_lm;
  config.activation = Activation::gelu;
  config.norm_epsilon = keys.at("attention.layer_norm_epsilon", float{});
  config.output_bias = false;
  config.tied_embeddings = !keys.has("output.weight");
}

}  // namespace

const GgufFamily& gguf_gpt2() {
  static const GgufFamily family{{{"gpt2",
                                   {{"architecture", "decoder-lm"},
                                    {"positions", "learned"},
                                    {"activation", "gelu"},
                                    {"embeddings", "*"},
                                    {"norm_epsilon", "*"},
                                    {"output_bias", "*"}}}},
                                 [](const ModelSpec&, std::string_view) {},
                                 gpt2_placed,
                                 add_gpt2_keys,
                                 describe_gpt2};
  return family;
}

}  // namespace trafo::interop
