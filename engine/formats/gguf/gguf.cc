// The GGUF file of a model of Llama's form, as llama.cpp reads it: its architecture "llama",
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
//
// Norms are float32. In Q4_0 files the output matrix, which may be the embeddings as well, is Q8_0:
// every logit depends on it.
#include <algorithm>
#include <cmath>
#include <map>

#include "engine/formats/formats.h"
#include "engine/formats/gguf/gguf_file.h"
#include "engine/formats/gguf/gguf_tokenizer.h"
#include "engine/formats/hf/directory.h"
#include "engine/formats/stored_weights.h"
#include "engine/io/safetensors_header.h"

namespace trafo::interop {
namespace {

namespace fs = std::filesystem;

constexpr const char* kGgufFormat = "GGUF";
constexpr const char* kFile = "model.gguf";
// Numbers by which llama.cpp divides the angle of each pair of a head: the positions of Llama 3.
constexpr const char* kRopeDivisors = "rope_freqs.weight";

// In the order of the forms of gguf_expressible().
struct GgufArchitecture {
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
constexpr GgufArchitecture kArchitectures[] = {
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

const GgufArchitecture& architecture_of(const ModelSpec& spec) {
  return kArchitectures[std::max(0, match(spec, gguf_expressible()).form)];
}

// general.file_type: what most matrices are.
struct Stored {
  GgufType type;
  uint32_t file_type;
};
Stored stored_as(ExportWeights weights) {
  switch (weights) {
    case ExportWeights::float16:
      return {GgufType::f16, 1};
    case ExportWeights::q8_0:
      return {GgufType::q8_0, 7};
    case ExportWeights::q4_0:
      return {GgufType::q4_0, 2};
    default:
      return {GgufType::f32, 0};
  }
}

const WeightFormat& format_of(GgufType type) {
  switch (type) {
    case GgufType::f16:
      return formats::kFloat16;
    case GgufType::q8_0:
      return formats::kQ8_0;
    case GgufType::q4_0:
      return formats::kQ4_0;
    case GgufType::f32:
      break;
  }
  return formats::kFloat32;
}

// A tensor of the file, and where it comes from. head_rows: rows of a head, where the two halves of
// each are interleaved; otherwise 0.
struct Placed {
  GgufTensor stored;
  MappedTensor ours;
  int64_t head_rows = 0;
};

// "model.layers.3.mlp.up_proj.weight" is "blk.3.ffn_up.weight".
std::string name_of(const std::string& name, NormPlacement placement) {
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

std::vector<Placed> tensors_of(const HostModel& host, ExportWeights weights) {
  const ModelSpec& spec = host.spec();
  const GgufType matrices = stored_as(weights).type;
  const bool reordered = architecture_of(spec).neighbours_turn;
  const char* output = spec.output.tied ? "token_embd.weight" : "output.weight";
  std::vector<Placed> placed;
  for (MappedTensor& tensor : llama_tensors(host.config())) {
    const std::string name = name_of(tensor.name, spec.decoder.norm.placement);
    tensor.less = 0;  // norms are what their values are multiplied by
    GgufType type = tensor.shape.size() == 1 ? GgufType::f32 : matrices;
    if (type == GgufType::q4_0 && name == output) type = GgufType::q8_0;
    const bool turned =
        reordered && (name.ends_with(".attn_q.weight") || name.ends_with(".attn_k.weight"));
    placed.push_back({{name, tensor.shape, type},
                      std::move(tensor),
                      turned ? spec.decoder.attention.head_dim : 0});
  }
  return placed;
}

// Row i of the first half of a head goes to row 2i, row i of the second half to row 2i + 1; or
// back.
std::vector<float> reordered(const std::vector<float>& values, const Placed& placed, bool back) {
  if (placed.head_rows == 0) return values;
  const int64_t columns = placed.ours.shape[1], half = placed.head_rows / 2;
  std::vector<float> result(values.size());
  for (int64_t row = 0; row < placed.ours.rows; ++row) {
    const int64_t head = row / placed.head_rows, in_head = row % placed.head_rows;
    const int64_t there =
        head * placed.head_rows + (in_head < half ? 2 * in_head : 2 * (in_head - half) + 1);
    const int64_t from = back ? there : row, to = back ? row : there;
    std::copy_n(values.begin() + from * columns, columns, result.begin() + to * columns);
  }
  return result;
}

std::vector<std::byte> encoded(const GgufTensor& tensor, const std::vector<float>& values) {
  switch (tensor.type) {
    case GgufType::f16:
      return to_float16(tensor.name, values);
    case GgufType::q8_0:
    case GgufType::q4_0:
      return to_blocks(tensor.name, format_of(tensor.type), values);
    case GgufType::f32:
      break;
  }
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

std::vector<float> decoded(const GgufTensor& tensor, const std::vector<std::byte>& bytes) {
  switch (tensor.type) {
    case GgufType::f16:
      return from_float16(bytes);
    case GgufType::q8_0:
    case GgufType::q4_0:
      return from_blocks(format_of(tensor.type), bytes);
    case GgufType::f32:
      break;
  }
  const auto* values = reinterpret_cast<const float*>(bytes.data());
  return {values, values + bytes.size() / sizeof(float)};
}

// Empty: no angle is divided, or the metadata say by how much.
std::vector<float> rope_divisors(const ModelSpec& spec) {
  const AttentionSpec& attention = spec.decoder.attention;
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

GgufTensor divisors_tensor(const std::vector<float>& divisors) {
  return {kRopeDivisors, {static_cast<int64_t>(divisors.size())}, GgufType::f32};
}

void check_widths(const StackSpec& decoder, ExportWeights weights) {
  if (weights != ExportWeights::q8_0 && weights != ExportWeights::q4_0) return;
  constexpr int64_t kBlockValues = formats::kQ8_0.group;
  static_assert(kBlockValues == formats::kQ4_0.group);
  const auto check = [&](const char* flag, int64_t width) {
    if (width % kBlockValues != 0)
      cannot_express(kGgufFormat,
                     concat(flag, " ", width, " with --weights ", enum_name(weights),
                            ", whose blocks have ", kBlockValues,
                            " values; train with a multiple of ", kBlockValues, " or use float16"));
  };
  check("--dim-emb", decoder.width);
  check("--transformer-dim-ffn", decoder.feed_forward.width);
  check("heads times head_width", decoder.attention.query_width());
}

GgufPairs pairs_of(const ModelSpec& spec, const ExportVocabulary& vocabulary,
                   ExportWeights weights) {
  const auto number = [](int64_t value) { return static_cast<uint32_t>(value); };
  const AttentionSpec& attention = spec.decoder.attention;
  const std::string name = architecture_of(spec).name;
  const RotaryAngles& angles = *attention.rotary;
  GgufPairs pairs;
  const auto add = [&](std::string key, GgufValue value) {
    pairs.emplace_back(std::move(key), std::move(value));
  };
  const auto add_own = [&](const char* key, GgufValue value) {
    add(concat(name, ".", key), std::move(value));
  };
  add("general.architecture", name);
  add("general.name", "Trafo decoder-lm");
  add("general.file_type", stored_as(weights).file_type);
  add("general.quantization_version", number(2));
  add_own("vocab_size", number(spec.vocabulary));
  add_own("context_length", number(spec.max_positions));
  add_own("embedding_length", number(spec.width()));
  add_own("block_count", number(spec.decoder.layers()));
  add_own("feed_forward_length", number(spec.decoder.feed_forward.width));
  add_own("attention.head_count", number(attention.heads));
  add_own("attention.head_count_kv", number(attention.key_heads));
  add_own("attention.key_length", number(attention.head_dim));
  add_own("attention.value_length", number(attention.head_dim));
  add_own("attention.layer_norm_rms_epsilon", static_cast<float>(spec.decoder.norm.epsilon));
  add_own("rope.dimension_count", number(attention.head_dim));
  add_own("rope.freq_base", static_cast<float>(angles.theta));
  if (angles.scaling == RopeScaling::yarn) {
    add_own("rope.scaling.type", "yarn");
    add_own("rope.scaling.factor", static_cast<float>(angles.factor));
    add_own("rope.scaling.original_context_length", number(angles.original_positions));
  }
  if (name == "mistral3") {
    add_own("rope.scaling.yarn_beta_fast", static_cast<float>(angles.high_turns));
    add_own("rope.scaling.yarn_beta_slow", static_cast<float>(angles.low_turns));
    add_own("rope.scaling.attn_factor",
            static_cast<float>(angles.magnitude / yarn_magnitude(angles.factor)));
    add_own("attention.temperature_scale", static_cast<float>(angles.query_growth));
  }
  if (attention.window > 0) add_own("attention.sliding_window", number(attention.window));
  if (angles.scaling == RopeScaling::llama3 && angles.factor != 1 &&
      angles.original_positions == 0) {
    add_own("rope.scaling.type", "linear");
    add_own("rope.scaling.factor", static_cast<float>(angles.factor));
  }
  if (name == "gemma2") {
    add_own("attn_logit_softcapping", static_cast<float>(attention.soft_cap));
    add_own("final_logit_softcapping", static_cast<float>(spec.output.soft_cap));
  }
  if (architecture_of(spec).form.scaled) {
    const double usual = 1 / std::sqrt(static_cast<double>(attention.head_dim));
    add_own("embedding_scale", static_cast<float>(spec.embedding.scale));
    add_own("attention.scale", static_cast<float>(attention.scale > 0 ? attention.scale : usual));
    add_own("residual_scale", static_cast<float>(spec.decoder.residual_scale));
    add_own("logit_scale", static_cast<float>(spec.output.divisor));
  }
  for (auto& [key, value] : tokenizer_pairs(*vocabulary.tokenizer, vocabulary.tokens))
    add(std::move(key), std::move(value));
  return pairs;
}

// The factor of the scores of a Gemma 2 in llama.cpp, which makes it of the sizes; 0: the usual
// one.
double gemma2_scale(int64_t layers, int64_t width, int64_t heads) {
  return layers == kGemma2WideLayers ? 1 / std::sqrt(static_cast<double>(width / heads)) : 0;
}

void check_gemma(const ModelSpec& spec) {
  const std::string_view name = architecture_of(spec).name;
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

// The model that the metadata and the tensors describe, by the keys that llama.cpp reads.
ModelConfig described_by(const GgufReader& in) {
  const auto find = [&]<class T>(const std::string& key, T) -> const T* {
    for (const auto& [name, value] : in.pairs())
      if (name == key) return std::get_if<T>(&value);
    return nullptr;
  };
  const auto at = [&]<class T>(const std::string& key, T kind) {
    const T* value = find(key, kind);
    require(value != nullptr, ErrorCode::corrupt_file, kOrigin, in.label(), " has no ", key);
    return *value;
  };
  const std::string name = at("general.architecture", std::string());
  const auto of_name = [&](const GgufArchitecture& each) { return name == each.name; };
  require(std::any_of(std::begin(kArchitectures), std::end(kArchitectures), of_name),
          ErrorCode::corrupt_file, kOrigin, in.label(), ": general.architecture is ", name);
  const auto key_of = [&](const char* key) { return concat(name, ".", key); };
  const auto count = [&](const char* key) {
    return static_cast<int64_t>(at(key_of(key), uint32_t{}));
  };
  ModelConfig config;
  config.architecture = Architecture::decoder_lm;
  config.norm = Norm::rms;
  config.positions = Positions::rotary;
  config.ffn = FeedForward::swiglu;
  config.activation = Activation::silu;
  config.biases = false;
  const auto has = [&](const char* tensor) {
    return std::any_of(in.tensors().begin(), in.tensors().end(),
                       [&](const GgufTensor& each) { return each.name == tensor; });
  };
  config.qkv_biases = has("blk.0.attn_q.bias");
  const bool gemma2 = name == "gemma2", gemma = gemma2 || name == "gemma3";
  if (has("blk.0.attn_q_norm.weight"))
    config.qk_norm = name == "qwen3" || gemma ? QkNorm::head
                     : name == "olmo2"        ? QkNorm::whole
                                              : QkNorm::head_after_rotary;
  config.norm_outputs = !gemma && has("blk.0.post_ffw_norm.weight");
  if (name == "smollm3") config.no_rope_interval = kSmolLm3Interval;
  if (name == "granite") {
    config.embedding_scale = at(key_of("embedding_scale"), float{});
    config.attention_scale = at(key_of("attention.scale"), float{});
    config.residual_scale = at(key_of("residual_scale"), float{});
    config.logits_divisor = at(key_of("logit_scale"), float{});
  }
  config.vocabulary = count("vocab_size");
  config.max_positions = count("context_length");
  config.width = count("embedding_length");
  config.decoder_layers = count("block_count");
  config.ffn_width = count("feed_forward_length");
  config.heads = count("attention.head_count");
  config.kv_heads = count("attention.head_count_kv");
  config.head_width = count("attention.key_length");
  config.norm_epsilon = at(key_of("attention.layer_norm_rms_epsilon"), float{});
  config.rope_theta = at(key_of("rope.freq_base"), float{});
  if (gemma) {
    config.ffn = FeedForward::geglu;
    config.activation = Activation::gelu;
    config.sandwich_norm = true;
    config.embedding_scale = std::sqrt(static_cast<double>(config.width));
    config.sliding_window = count("attention.sliding_window");
    config.full_attention_interval = gemma2 ? kGemma2Interval : kGemmaInterval;
    config.rope_local_theta = gemma2 ? 0 : kGemmaLocalTheta;
  }
  if (gemma2) {
    config.attention_soft_cap = at(key_of("attn_logit_softcapping"), float{});
    config.logits_soft_cap = at(key_of("final_logit_softcapping"), float{});
    config.attention_scale = gemma2_scale(config.decoder_layers, config.width, config.heads);
  }
  const std::string* const scaling = find(key_of("rope.scaling.type"), std::string());
  if (scaling != nullptr) config.rope_factor = at(key_of("rope.scaling.factor"), float{});
  if (scaling != nullptr && *scaling == "yarn") {
    config.rope_scaling = RopeScaling::yarn;
    config.rope_original_positions = count("rope.scaling.original_context_length");
    config.rope_low_turns = kYarnSlow;
    config.rope_high_turns = kYarnFast;
  }
  if (name == "mistral3") {
    config.rope_high_turns = at(key_of("rope.scaling.yarn_beta_fast"), float{});
    config.rope_low_turns = at(key_of("rope.scaling.yarn_beta_slow"), float{});
    config.rope_magnitude =
        at(key_of("rope.scaling.attn_factor"), float{}) * yarn_magnitude(config.rope_factor);
    config.rope_query_growth = at(key_of("attention.temperature_scale"), float{});
  }
  config.tied_embeddings = !has("output.weight");
  return config;
}

}  // namespace

const Expressible& gguf_expressible() {
  static const Expressible expressible = [] {
    Expressible all{kGgufFormat, {}};
    for (const GgufArchitecture& each : kArchitectures) all.forms.push_back(llama_form(each.form));
    return all;
  }();
  return expressible;
}

void write_gguf(const HostModel& host, const ExportVocabulary& vocabulary, ExportWeights weights,
                const fs::path& directory) {
  check_widths(host.spec().decoder, weights);
  check_gemma(host.spec());
  const GgufPairs pairs = pairs_of(host.spec(), vocabulary, weights);
  const std::vector<Placed> placed = tensors_of(host, weights);
  std::vector<GgufTensor> tensors;
  for (const Placed& each : placed) tensors.push_back(each.stored);
  const std::vector<float> divisors = rope_divisors(host.spec());
  if (!divisors.empty()) tensors.push_back(divisors_tensor(divisors));
  size_t next = 0;
  write_gguf_file(directory / kFile, pairs, tensors, [&](const GgufTensor& tensor) {
    if (next == placed.size()) return encoded(tensor, divisors);
    const Placed& each = placed[next++];
    return encoded(tensor, reordered(gather(host.parameters(), each.ours), each, false));
  });
}

HostModel read_back_gguf(const HostModel& host, const ExportVocabulary& vocabulary,
                         ExportWeights weights, const fs::path& directory) {
  GgufReader in(directory / kFile);
  const auto check = [&](bool condition, const auto&... message) {
    require(condition, ErrorCode::corrupt_file, kOrigin, in.label(), ": ", message...);
  };
  check(in.pairs() == pairs_of(host.spec(), vocabulary, weights), "the metadata are others");
  const std::vector<Placed> placed = tensors_of(host, weights);
  const std::vector<float> divisors = rope_divisors(host.spec());
  check(in.tensors().size() == placed.size() + (divisors.empty() ? 0 : 1),
        "another number of tensors");
  ModelConfig config = described_by(in);
  if (!divisors.empty()) {
    const GgufTensor tensor = divisors_tensor(divisors);
    check(in.tensors().back() == tensor && decoded(tensor, in.data(placed.size())) == divisors,
          kRopeDivisors, " is another tensor");
    // The file has no other trace of the numbers that these are made of.
    const ModelConfig& ours = host.config();
    config.rope_factor = ours.rope_factor;
    config.rope_original_positions = ours.rope_original_positions;
    config.rope_low_turns = ours.rope_low_turns;
    config.rope_high_turns = ours.rope_high_turns;
  }
  HostModel again = make_host_model(config, nullptr, directory);
  for (size_t i = 0; i < placed.size(); ++i) {
    const Placed& each = placed[i];
    check(in.tensors()[i] == each.stored, each.stored.name, " is another tensor");
    const std::vector<float> values = reordered(decoded(each.stored, in.data(i)), each, true);
    check_rounding(each.stored.name, format_of(each.stored.type),
                   gather(host.parameters(), each.ours), values, each.ours.shape.back());
    scatter(again.parameters(), each.ours, values);
  }
  return again;
}

}  // namespace trafo::interop
