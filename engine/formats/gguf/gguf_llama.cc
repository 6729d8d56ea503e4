// Models of Llama's form in GGUF files, as llama.cpp reads them: its architecture "llama",
// "qwen2" (biases of queries, keys and values), "qwen3" and "hunyuan-dense" (norms of queries and
// keys), "smollm3" (layers without rotary positions), "granite" (four factors), "olmo2" (norms of
// outputs), "gemma2" or "gemma3" (norms of inputs and outputs, GEGLU, windows; soft caps),
// "mistral3" (Ministral 3: queries that grow with their positions, any constants of YaRN),
// tokenizer of gguf_tokenizer.h. Other architectures of this form have no window there, or
// llama.cpp ignores it.
//
// In some of them llama.cpp turns neighbouring columns of a head (2i, 2i + 1) by one angle
// (neighbours_turn), models here the columns (i, i + width / 2), as llama.cpp's others. The rows of
// the projections of queries and keys of the former are therefore stored in another order.
#include <algorithm>
#include <cmath>
#include <map>

#include "engine/formats/gguf/gguf_family.h"

namespace trafo::interop {
namespace {

struct LlamaArchitecture {
  const char* name;
  bool neighbours_turn;
  LlamaForm form;
};
constexpr int64_t kSmolLm3Interval = 4;  // llama.cpp knows no other
// Of Gemma 3, which llama.cpp knows by itself. It has another factor of scores for 62 layers.
constexpr int64_t kGemmaInterval = 6, kGemmaOddLayers = 62;
constexpr double kGemmaLocalTheta = 1e4;
// Of Gemma 2: always both soft caps, no output matrix, and for 46 layers another factor of scores.
constexpr int64_t kGemma2Interval = 2, kGemma2WideLayers = 46;
constexpr LlamaArchitecture kArchitectures[] = {
    {"llama", true, {.rope_scaling = "none yarn llama3"}},
    {"qwen2", false, {.biases = "qkv", .rope_scaling = "none yarn"}},
    {"qwen3",
     false,
     {.qk_norm = QkNorm::head, .any_head_width = true, .rope_scaling = "none yarn"}},
    {"hunyuan-dense",
     false,
     {.qk_norm = QkNorm::head_after_rotary, .any_head_width = true, .rope_scaling = "none yarn"}},
    {"smollm3", true, {.no_rope_interval = "4"}},
    {"granite", true, {.scaled = true}},
    {"olmo2", false, {.qk_norm = QkNorm::whole, .norms = NormPlacement::on_output}},
    {"gemma2",
     false,
     {.norms = NormPlacement::sandwich,
      .any_head_width = true,
      .window = "2",
      .gemma = true,
      .attention_scale = "*",
      .soft_caps = "*"}},
    {"gemma3",
     false,
     {.qk_norm = QkNorm::head,
      .norms = NormPlacement::sandwich,
      .any_head_width = true,
      .rope_scaling = "none linear",
      .window = "6",
      .gemma = true,
      .local_theta = "10000 10000.0"}},
    {"mistral3",
     true,
     {.any_head_width = true, .rope_scaling = "yarn yarn+constants", .query_growth = "*"}}};

const LlamaArchitecture& architecture_named(std::string_view name) {
  return *std::find_if(std::begin(kArchitectures), std::end(kArchitectures),
                       [&](const LlamaArchitecture& each) { return name == each.name; });
}

// "model.layers.3.mlp.up_proj.weight" is "blk.3.ffn_up.weight".
std::string gguf_name_of_llama(const std::string& name, NormPlacement placement) {
  static const std::map<std::string_view, const char*> kNames = {
      {"model.embed_tokens.weight", "token_embd.weight"},
      {"model.norm.weight", "output_norm.weight"},
      {"lm_head.weight", "output.weight"},
      {"input_layernorm.weight", "attn_norm.weight"},
      {"self_attn.q_proj.weight", "attn_q.weight"},
      {"self_attn.q_proj.bias", "attn_q.bias"},
      {"self_attn.q_norm.weight", "attn_q_norm.weight"},
      {"self_attn.query_layernorm.weight", "attn_q_norm.weight"},
      {"self_attn.k_proj.weight", "attn_k.weight"},
      {"self_attn.k_proj.bias", "attn_k.bias"},
      {"self_attn.k_norm.weight", "attn_k_norm.weight"},
      {"self_attn.key_layernorm.weight", "attn_k_norm.weight"},
      {"self_attn.v_proj.weight", "attn_v.weight"},
      {"self_attn.v_proj.bias", "attn_v.bias"},
      {"self_attn.o_proj.weight", "attn_output.weight"},
      {"post_attention_layernorm.weight", "ffn_norm.weight"},
      {"pre_feedforward_layernorm.weight", "ffn_norm.weight"},
      {"post_feedforward_layernorm.weight", "post_ffw_norm.weight"},
      {"mlp.gate_proj.weight", "ffn_gate.weight"},
      {"mlp.up_proj.weight", "ffn_up.weight"},
      {"mlp.down_proj.weight", "ffn_down.weight"},
  };
  constexpr std::string_view kLayers = "model.layers.";
  if (!name.starts_with(kLayers)) return kNames.at(name);
  const size_t dot = name.find('.', kLayers.size());
  if (placement != NormPlacement::before && name.ends_with(".post_attention_layernorm.weight"))
    return concat("blk.", name.substr(kLayers.size(), dot - kLayers.size()),
                  ".post_attention_norm.weight");
  return concat("blk.", name.substr(kLayers.size(), dot - kLayers.size()), ".",
                kNames.at(std::string_view(name).substr(dot + 1)));
}

std::vector<GgufPlaced> llama_placed(const ModelConfig& config, const ModelSpec& spec,
                                     std::string_view architecture) {
  const bool reordered = architecture_named(architecture).neighbours_turn;
  std::vector<GgufPlaced> placed;
  for (MappedTensor& tensor : llama_tensors(config)) {
    std::string name = gguf_name_of_llama(tensor.name, spec.decoder.norm.placement);
    tensor.less = 0;  // norms are what their values are multiplied by
    const bool turned =
        reordered && (name.ends_with(".attn_q.weight") || name.ends_with(".attn_k.weight"));
    placed.push_back({.name = std::move(name),
                      .ours = std::move(tensor),
                      .head_rows = turned ? spec.decoder.attention.head_dim : 0});
  }
  return placed;
}

void add_llama_keys(const ModelSpec& spec, std::string_view name, const AddGgufKey& add) {
  const auto number = [](int64_t value) { return static_cast<uint32_t>(value); };
  const AttentionSpec& attention = spec.decoder.attention;
  const RotaryAngles& angles = *attention.rotary;
  add("attention.head_count_kv", number(attention.key_heads));
  add("attention.key_length", number(attention.head_dim));
  add("attention.value_length", number(attention.head_dim));
  add("attention.layer_norm_rms_epsilon", static_cast<float>(spec.decoder.norm.epsilon));
  add("rope.dimension_count", number(attention.head_dim));
  add("rope.freq_base", static_cast<float>(angles.theta));
  if (angles.scaling == RopeScaling::yarn) {
    add("rope.scaling.type", "yarn");
    add("rope.scaling.factor", static_cast<float>(angles.factor));
    add("rope.scaling.original_context_length", number(angles.original_positions));
  }
  if (name == "mistral3") {
    add("rope.scaling.yarn_beta_fast", static_cast<float>(angles.high_turns));
    add("rope.scaling.yarn_beta_slow", static_cast<float>(angles.low_turns));
    add("rope.scaling.attn_factor",
        static_cast<float>(angles.magnitude / yarn_magnitude(angles.factor)));
    add("attention.temperature_scale", static_cast<float>(angles.query_growth));
  }
  if (attention.window > 0) add("attention.sliding_window", number(attention.window));
  if (angles.scaling == RopeScaling::llama3 && angles.factor != 1 &&
      angles.original_positions == 0) {
    add("rope.scaling.type", "linear");
    add("rope.scaling.factor", static_cast<float>(angles.factor));
  }
  if (name == "gemma2") {
    add("attn_logit_softcapping", static_cast<float>(attention.soft_cap));
    add("final_logit_softcapping", static_cast<float>(spec.output.soft_cap));
  }
  if (architecture_named(name).form.scaled) {
    const double usual = 1 / std::sqrt(static_cast<double>(attention.head_dim));
    add("embedding_scale", static_cast<float>(spec.embedding.scale));
    add("attention.scale", static_cast<float>(attention.scale > 0 ? attention.scale : usual));
    add("residual_scale", static_cast<float>(spec.decoder.residual_scale));
    add("logit_scale", static_cast<float>(spec.output.divisor));
  }
}

// The factor of the scores of a Gemma 2 in llama.cpp, which makes it of the sizes; 0: the usual
// one.
double gemma2_scale(int64_t layers, int64_t width, int64_t heads) {
  return layers == kGemma2WideLayers ? 1 / std::sqrt(static_cast<double>(width / heads)) : 0;
}

void check_gemma(const ModelSpec& spec, std::string_view name) {
  const StackSpec& decoder = spec.decoder;
  const AttentionSpec& attention = decoder.attention;
  if (name == "gemma3" && decoder.layers() == kGemmaOddLayers)
    cannot_express(kGgufFormat, "the attention_scale of a Gemma 3 with 62 layers");
  if (name != "gemma2") return;
  if (attention.soft_cap == 0 || spec.output.soft_cap == 0)
    cannot_express(kGgufFormat, "a Gemma 2 without attention_soft_cap and logits_soft_cap");
  if (!spec.output.tied)
    cannot_express(kGgufFormat, "an output matrix that is not the embeddings in a Gemma 2");
  const double usual = 1 / std::sqrt(static_cast<double>(attention.head_dim));
  const double theirs = gemma2_scale(decoder.layers(), decoder.width, attention.heads);
  const auto or_usual = [&](double scale) { return scale > 0 ? scale : usual; };
  if (std::abs(or_usual(attention.scale) - or_usual(theirs)) > 1e-9)
    cannot_express(kGgufFormat, concat("attention_scale ", attention.scale, " in a Gemma 2 with ",
                                       decoder.layers(), " layers"));
}

void describe_llama(const GgufKeys& keys, ModelConfig& config) {
  const std::string& name = keys.architecture();
  config.architecture = Architecture::decoder_lm;
  config.norm = Norm::rms;
  config.positions = Positions::rotary;
  config.ffn = FeedForward::swiglu;
  config.activation = Activation::silu;
  config.biases = false;
  config.qkv_biases = keys.has("blk.0.attn_q.bias");
  const bool gemma2 = name == "gemma2", gemma = gemma2 || name == "gemma3";
  if (keys.has("blk.0.attn_q_norm.weight"))
    config.qk_norm = name == "qwen3" || gemma ? QkNorm::head
                     : name == "olmo2"        ? QkNorm::whole
                                              : QkNorm::head_after_rotary;
  config.norm_outputs = !gemma && keys.has("blk.0.post_ffw_norm.weight");
  if (name == "smollm3") config.no_rope_interval = kSmolLm3Interval;
  if (name == "granite") {
    config.embedding_scale = keys.at("embedding_scale", float{});
    config.attention_scale = keys.at("attention.scale", float{});
    config.residual_scale = keys.at("residual_scale", float{});
    config.logits_divisor = keys.at("logit_scale", float{});
  }
  config.decoder_layers = keys.count("block_count");
  config.kv_heads = keys.count("attention.head_count_kv");
  config.head_width = keys.count("attention.key_length");
  config.norm_epsilon = keys.at("attention.layer_norm_rms_epsilon", float{});
  config.rope_theta = keys.at("rope.freq_base", float{});
  if (gemma) {
    config.ffn = FeedForward::geglu;
    config.activation = Activation::gelu;
    config.sandwich_norm = true;
    config.embedding_scale = std::sqrt(static_cast<double>(config.width));
    config.sliding_window = keys.count("attention.sliding_window");
    config.full_attention_interval = gemma2 ? kGemma2Interval : kGemmaInterval;
    config.rope_local_theta = gemma2 ? 0 : kGemmaLocalTheta;
  }
  if (gemma2) {
    config.attention_soft_cap = keys.at("attn_logit_softcapping", float{});
    config.logits_soft_cap = keys.at("final_logit_softcapping", float{});
    config.attention_scale = gemma2_scale(config.decoder_layers, config.width, config.heads);
  }
  const std::string* const scaling = keys.find("rope.scaling.type", std::string());
  if (scaling != nullptr) config.rope_factor = keys.at("rope.scaling.factor", float{});
  if (scaling != nullptr && *scaling == "yarn") {
    config.rope_scaling = RopeScaling::yarn;
    config.rope_original_positions = keys.count("rope.scaling.original_context_length");
    config.rope_low_turns = kYarnSlow;
    config.rope_high_turns = kYarnFast;
  }
  if (name == "mistral3") {
    config.rope_high_turns = keys.at("rope.scaling.yarn_beta_fast", float{});
    config.rope_low_turns = keys.at("rope.scaling.yarn_beta_slow", float{});
    config.rope_magnitude =
        keys.at("rope.scaling.attn_factor", float{}) * yarn_magnitude(config.rope_factor);
    config.rope_query_growth = keys.at("attention.temperature_scale", float{});
  }
  config.tied_embeddings = !keys.has("output.weight");
}

}  // namespace

std::vector<float> gguf_rope_divisors(const ModelSpec& spec) {
  const AttentionSpec& attention = spec.decoder.attention;
  if (!attention.rotary) return {};
  const RotaryAngles& angles = *attention.rotary;
  if (angles.scaling != RopeScaling::llama3 || angles.factor == 1 || angles.original_positions == 0)
    return {};
  const RotaryAngles plain{.theta = angles.theta};
  std::vector<float> divisors;
  for (int64_t pair = 0; pair < attention.head_dim / 2; ++pair)
    divisors.push_back(static_cast<float>(plain.of_pair(pair, attention.head_dim) /
                                          angles.of_pair(pair, attention.head_dim)));
  return divisors;
}

const GgufFamily& gguf_llama() {
  static const GgufFamily family = [] {
    GgufFamily made{{}, check_gemma, llama_placed, add_llama_keys, describe_llama};
    for (const LlamaArchitecture& each : kArchitectures)
      made.architectures.push_back({each.name, llama_form(each.form)});
    return made;
  }();
  return family;
}

}  // namespace trafo::interop
