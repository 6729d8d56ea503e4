#include "engine/models/model_config.h"

#include <algorithm>
#include <array>
#include <vector>

#include "engine/core/json.h"
#include "engine/core/library_memory.h"

namespace trafo {
namespace {

constexpr const char* kOrigin = "model_config";

// One place that knows every field, for writing, reading and counting.
template <class Config, class Visit>
void for_each_field(Config& c, Visit visit) {
  visit("vocabulary", c.vocabulary);
  visit("encoder_layers", c.encoder_layers);
  visit("decoder_layers", c.decoder_layers);
  visit("width", c.width);
  visit("ffn_width", c.ffn_width);
  visit("heads", c.heads);
  visit("max_positions", c.max_positions);
  visit("pre_norm", c.pre_norm);
  visit("tied_embeddings", c.tied_embeddings);
  visit("dropout", c.dropout);
  visit("attention_dropout", c.attention_dropout);
  visit("ffn_dropout", c.ffn_dropout);
  visit("norm_epsilon", c.norm_epsilon);
}

// What older files lack.
template <class Config, class Visit>
void for_each_later_field(Config& c, Visit visit) {
  visit("biases", c.biases);
  visit("kv_heads", c.kv_heads);
  visit("rope_theta", c.rope_theta);
  visit("depth_scaled_init", c.depth_scaled_init);
  visit("output_bias", c.output_bias);
}

const char* name_of(Norm norm) {
  return norm == Norm::rms ? "rms" : "layer";
}
const char* name_of(Positions positions) {
  return positions == Positions::rotary ? "rotary" : "standard";
}
const char* name_of(FeedForward ffn) {
  return ffn == FeedForward::swiglu ? "swiglu" : "plain";
}

// fn(field, value, {the values there are}) for what older files lack and has names.
template <class Config, class Visit>
void for_each_later_choice(Config& c, Visit visit) {
  visit("norm", c.norm, std::array{Norm::layer, Norm::rms});
  visit("positions", c.positions, std::array{Positions::standard, Positions::rotary});
  visit("ffn", c.ffn, std::array{FeedForward::plain, FeedForward::swiglu});
}

void check_range(const char* field, int64_t value, int64_t low, int64_t high) {
  require(value >= low && value <= high, ErrorCode::invalid_argument, kOrigin, field, " must be ",
          low, " to ", high, ", got ", value);
}

void check_probability(const char* field, double value) {
  require(value >= 0 && value < 1, ErrorCode::invalid_argument, kOrigin, field,
          " must be at least 0 and below 1, got ", value);
}

void check_form(const ModelConfig& c) {
  const auto known = [](auto value) { return static_cast<int32_t>(value) >> 1 == 0; };
  require(known(c.norm) && known(c.positions) && known(c.ffn), ErrorCode::invalid_argument, kOrigin,
          "norm, positions and ffn must be 0 or 1, got ", static_cast<int32_t>(c.norm), ", ",
          static_cast<int32_t>(c.positions), " and ", static_cast<int32_t>(c.ffn));
  const bool rotary = c.positions == Positions::rotary;
  require(info_of(c.architecture).free_form ||
              (c.norm == Norm::layer && !rotary && c.ffn == FeedForward::plain && c.biases),
          ErrorCode::invalid_argument, kOrigin,
          "RMS norm, rotary positions, SwiGLU and projections without biases are for decoder-lm; ",
          info_of(c.architecture).name, " has none of them");
  require(c.norm == Norm::layer || !c.biases, ErrorCode::invalid_argument, kOrigin,
          "norm rms goes without biases: set biases to 0");
  require(c.ffn == FeedForward::plain || c.activation == Activation::silu,
          ErrorCode::invalid_argument, kOrigin, "the activation of ffn swiglu is silu, not ",
          activation_name(c.activation));
  check_range("kv_heads", c.kv_heads, 0, c.heads);
  require(c.heads % c.key_heads() == 0, ErrorCode::invalid_argument, kOrigin, "the ", c.heads,
          " heads are not a multiple of the ", c.kv_heads, " kv_heads");
  require(rotary || c.key_heads() == c.heads, ErrorCode::invalid_argument, kOrigin,
          "kv_heads below heads (", c.kv_heads, " of ", c.heads,
          ") come with rotary positions only");
  require(!rotary || c.head_dim() % 2 == 0, ErrorCode::invalid_argument, kOrigin,
          "rotary positions need heads of an even width, width ", c.width, " over ", c.heads,
          " heads is ", c.head_dim());
  require(c.rope_theta > 0 && c.rope_theta <= 1e12, ErrorCode::invalid_argument, kOrigin,
          "rope_theta must be above 0 and at most 1e12, got ", c.rope_theta);
}

}  // namespace

void validate(const ModelConfig& c) {
  info_of(c.architecture);  // throws for an unknown one
  require(c.activation == Activation::relu || c.activation == Activation::gelu ||
              c.activation == Activation::silu,
          ErrorCode::invalid_argument, kOrigin, "unknown activation ",
          static_cast<int32_t>(c.activation));
  check_range("vocabulary", c.vocabulary, 4, limits::kVocabulary);
  check_range("encoder_layers", c.encoder_layers, 1, limits::kLayers);
  check_range("decoder_layers", c.decoder_layers, 1, limits::kLayers);
  check_range("width", c.width, 2, limits::kModelDimension);
  check_range("ffn_width", c.ffn_width, 1, limits::kModelDimension);
  check_range("heads", c.heads, 1, c.width);
  check_range("max_positions", c.max_positions, 2, limits::kModelDimension);
  require(c.width % 2 == 0, ErrorCode::invalid_argument, kOrigin, "width must be even, got ",
          c.width);
  require(c.width % c.heads == 0, ErrorCode::invalid_argument, kOrigin, "width ", c.width,
          " is not a multiple of the ", c.heads, " heads");
  check_probability("dropout", c.dropout);
  check_probability("attention_dropout", c.attention_dropout);
  check_probability("ffn_dropout", c.ffn_dropout);
  require(c.norm_epsilon > 0 && c.norm_epsilon < 1, ErrorCode::invalid_argument, kOrigin,
          "norm_epsilon must be above 0 and below 1, got ", c.norm_epsilon);
  check_form(c);
}

std::string to_json(const ModelConfig& config) {
  const LibraryMemory memory(LibraryMemory::json(0));
  nlohmann::ordered_json out;
  out["architecture"] = info_of(config.architecture).name;
  out["activation"] = activation_name(config.activation);
  for_each_field(config, [&](const char* name, const auto& value) { out[name] = value; });
  for_each_later_choice(
      config, [&](const char* name, auto value, const auto&) { out[name] = name_of(value); });
  for_each_later_field(config, [&](const char* name, const auto& value) { out[name] = value; });
  return out.dump(2);
}

ModelConfig model_config_from_json(const std::string& text) {
  const LibraryMemory memory(LibraryMemory::json(text.size()));
  ModelConfig config;
  const nlohmann::json json = parse_json(text, kOrigin, "not a model configuration");
  const JsonFields in(json, kOrigin, "not a model configuration");
  size_t fields = 0;
  const auto take = [&](const char* name, auto& value) {
    in.take(name, value);
    ++fields;
  };
  const auto take_later = [&](const char* name, auto& value) {
    if (in.has(name)) take(name, value);
  };
  const auto take_choice = [&](const char* name, auto& value, const auto& all, auto name_of_value) {
    std::string chosen;
    take(name, chosen);
    const auto found = std::find_if(all.begin(), all.end(),
                                    [&](auto each) { return chosen == name_of_value(each); });
    require(found != all.end(), ErrorCode::corrupt_file, kOrigin, "unknown ", name, " ",
            chosen.substr(0, 64));
    value = *found;
  };
  std::vector<Architecture> known;
  for (const ArchitectureInfo& info : architectures()) known.push_back(info.architecture);
  take_choice("architecture", config.architecture, known,
              [](Architecture architecture) { return info_of(architecture).name; });
  take_choice("activation", config.activation,
              std::array{Activation::relu, Activation::gelu, Activation::silu}, activation_name);
  for_each_field(config, take);
  for_each_later_field(config, take_later);
  for_each_later_choice(config, [&](const char* name, auto& value, const auto& all) {
    if (in.has(name)) take_choice(name, value, all, [](auto each) { return name_of(each); });
  });
  require(in.count() == fields, ErrorCode::corrupt_file, kOrigin, "the configuration has ",
          in.count(), " fields, this version knows ", fields);
  validate(config);
  return config;
}

}  // namespace trafo
