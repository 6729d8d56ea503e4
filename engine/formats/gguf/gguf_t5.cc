// The architecture "t5" of llama.cpp: T5ForConditionalGeneration, as hf/t5.cc describes it.
//
// llama.cpp does not multiply the last hidden states by d_model^-0.5. Of a model that does, the
// file has an output matrix beside the embedding: the embedding times this factor.
#include <cmath>
#include <map>

#include "engine/formats/gguf/gguf_family.h"

namespace trafo::interop {
namespace {

constexpr int64_t kMostDistance = 128;  // llama.cpp knows no other

// "decoder.block.3.layer.1.EncDecAttention.q.weight" is "dec.blk.3.cross_attn_q.weight".
std::string gguf_name_of_t5(const std::string& name) {
  static const std::map<std::string_view, const char*> kNames = {
      {"shared", "token_embd"},
      {"lm_head", "output"},
      {"encoder.final_layer_norm", "enc.output_norm"},
      {"decoder.final_layer_norm", "dec.output_norm"},
      {"SelfAttention.q", "attn_q"},
      {"SelfAttention.k", "attn_k"},
      {"SelfAttention.v", "attn_v"},
      {"SelfAttention.o", "attn_o"},
      {"SelfAttention.relative_attention_bias", "attn_rel_b"},
      {"EncDecAttention.q", "cross_attn_q"},
      {"EncDecAttention.k", "cross_attn_k"},
      {"EncDecAttention.v", "cross_attn_v"},
      {"EncDecAttention.o", "cross_attn_o"},
      {"DenseReluDense.wi", "ffn_up"},
      {"DenseReluDense.wi_0", "ffn_gate"},
      {"DenseReluDense.wi_1", "ffn_up"},
      {"DenseReluDense.wo", "ffn_down"},
  };
  constexpr std::string_view kWeight = ".weight", kBlock = ".block.", kLayer = ".layer.";
  const std::string_view whole = std::string_view(name).substr(0, name.size() - kWeight.size());
  const size_t block = whole.find(kBlock), layer = whole.find(kLayer);
  if (block == std::string_view::npos) return concat(kNames.at(whole), kWeight);
  const bool is_encoder = whole.starts_with("encoder");
  const size_t number = block + kBlock.size();
  const std::string front =
      concat(is_encoder ? "enc" : "dec", ".blk.", whole.substr(number, layer - number), ".");
  const char sublayer = whole[layer + kLayer.size()];
  const std::string_view module = whole.substr(layer + kLayer.size() + 2);
  if (module != "layer_norm") return concat(front, kNames.at(module), kWeight);
  const char* norm = sublayer == '0'                  ? "attn_norm"
                     : sublayer == '1' && !is_encoder ? "cross_attn_norm"
                                                      : "ffn_norm";
  return concat(front, norm, kWeight);
}

std::vector<GgufPlaced> t5_placed(const ModelConfig& config, const ModelSpec& spec,
                                  std::string_view) {
  std::vector<GgufPlaced> placed;
  for (MappedTensor& tensor : t5_tensors(config)) {
    std::string name = gguf_name_of_t5(tensor.name);
    const bool is_table = name.ends_with("attn_rel_b.weight");
    placed.push_back({.name = std::move(name), .ours = std::move(tensor), .is_float32 = is_table});
  }
  if (spec.output.divisor != 1) {
    GgufPlaced output = placed.front();
    output.name = "output.weight";
    output.factor = static_cast<float>(1 / spec.output.divisor);
    placed.push_back(std::move(output));
  }
  return placed;
}

void check_t5(const ModelSpec& spec, std::string_view) {
  const int64_t distance = spec.decoder.attention.relative->most_distance;
  if (distance != kMostDistance)
    cannot_express(kGgufFormat,
                   concat("relative_distance ", distance, ", llama.cpp has ", kMostDistance));
  if (spec.encoder->feed_forward.width != spec.decoder.feed_forward.width)
    cannot_express(kGgufFormat, "an encoder with another feed-forward width than the decoder");
}

void add_t5_keys(const ModelSpec& spec, std::string_view, const AddGgufKey& add) {
  const auto number = [](int64_t value) { return static_cast<uint32_t>(value); };
  const AttentionSpec& attention = spec.decoder.attention;
  add("decoder_block_count", number(spec.decoder.layers()));
  add("attention.key_length", number(attention.head_dim));
  add("attention.value_length", number(attention.head_dim));
  add("attention.layer_norm_rms_epsilon", static_cast<float>(spec.decoder.norm.epsilon));
  add("attention.relative_buckets_count", number(attention.relative->buckets));
}

void describe_t5(const GgufKeys& keys, ModelConfig& config) {
  config.architecture = Architecture::encoder_decoder;
  config.norm = Norm::rms;
  config.biases = config.output_bias = false;
  config.embedding_scale = config.attention_scale = 1;
  config.encoder_layers = keys.count("block_count");
  config.decoder_layers = keys.count("decoder_block_count");
  config.head_width = keys.count("attention.key_length");
  if (config.head_width * config.heads == config.width) config.head_width = 0;
  config.relative_buckets = keys.count("attention.relative_buckets_count");
  config.relative_distance = kMostDistance;
  config.norm_epsilon = keys.at("attention.layer_norm_rms_epsilon", float{});
  if (keys.has("enc.blk.0.ffn_gate.weight")) {
    config.ffn = FeedForward::geglu;
    config.activation = Activation::gelu;
  }
  config.separate_output = keys.has("output.weight");
}

// The forms of hf_t5_expressible() with the two feed-forwards that llama.cpp has.
std::vector<GgufFamily::Architecture> t5_architectures() {
  std::vector<GgufFamily::Architecture> all;
  for (const auto& [feed_forward, activation] :
       {std::pair{"plain", "relu"}, std::pair{"geglu", "gelu"}})
    for (const auto& [embeddings, divisor] :
         {std::pair{"tied", "sqrt(width)"}, std::pair{"tied shared", "1"}})
      all.push_back({"t5",
                     {{"positions", "relative"},
                      {"norm", "rms"},
                      {"feed-forward", feed_forward},
                      {"norm placement", "before"},
                      {"head_width", "*"},
                      {"biases", "none"},
                      {"attention_scale", "1"},
                      {"embedding_scale", "1"},
                      {"activation", activation},
                      {"norm_epsilon", "*"},
                      {"output_bias", "no"},
                      {"embeddings", embeddings},
                      {"logits_divisor", divisor}}});
  return all;
}

}  // namespace

const GgufFamily& gguf_t5() {
  static const GgufFamily family{t5_architectures(), check_t5, t5_placed, add_t5_keys, describe_t5};
  return family;
}

}  // namespace trafo::interop
