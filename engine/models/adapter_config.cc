#include "engine/models/adapter_config.h"

#include <algorithm>
#include <cmath>

#include "engine/core/argument_error.h"
#include "engine/core/json.h"
#include "engine/core/limits.h"
#include "engine/io/safetensors_header.h"

namespace trafo {
namespace {

constexpr const char* kAdapterConfigOrigin = "adapter";

// GPT-2's layers: one projection makes queries, keys and values.
bool has_joint_qkv(const ModelConfig& config) {
  return !config.has_encoder() && config.ffn == FeedForward::plain;
}

// Collects the sites of a model with the targets that are wanted.
class Sites {
 public:
  Sites(const ModelConfig& config, const std::vector<std::string>& targets)
      : config_(config), targets_(targets) {}

  struct Part {
    const char* target;
    int64_t rows;
    std::string prefix;  // of the module's name, before the target
  };
  // The parts of a matrix from its first row on.
  void matrix(const std::string& name, int64_t columns, const std::vector<Part>& parts) {
    AdapterSite site{name + ".weight", columns, {}};
    int64_t row = 0;
    for (const Part& part : parts) {
      if (std::find(targets_.begin(), targets_.end(), part.target) != targets_.end())
        site.modules.push_back({part.prefix + "." + part.target, {row, part.rows}});
      row += part.rows;
    }
    if (!site.modules.empty()) sites_.push_back(std::move(site));
  }
  // `side`: the configuration with the sizes of this block's stack.
  void block(const ModelConfig& side, const std::string& name, bool cross) {
    const int64_t width = side.width, kv = side.kv_width(), ffn = side.ffn_width;
    const int64_t queries = side.attention_width();
    const std::string attention = name + ".attention", feed_forward = name + ".ffn";
    if (has_joint_qkv(config_))
      matrix(attention + ".qkv", width, {{"qkv", side.qkv_width(), attention}});
    else
      matrix(attention + ".qkv", width,
             {{"query", queries, attention}, {"key", kv, attention}, {"value", kv, attention}});
    matrix(attention + ".output", queries, {{"output", width, attention}});
    if (cross) {
      matrix(name + ".cross.query", width, {{"query", queries, name + ".cross"}});
      matrix(name + ".cross.output", queries, {{"output", width, name + ".cross"}});
    }
    if (config_.ffn == FeedForward::swiglu)
      matrix(feed_forward + ".gate_up", width,
             {{"gate", ffn, feed_forward}, {"up", ffn, feed_forward}});
    else
      matrix(feed_forward + ".up", width, {{"up", ffn, feed_forward}});
    matrix(feed_forward + ".down", ffn, {{"down", width, feed_forward}});
  }
  std::vector<AdapterSite> take() { return std::move(sites_); }

 private:
  const ModelConfig& config_;
  const std::vector<std::string>& targets_;
  std::vector<AdapterSite> sites_;
};

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : " ") + name;
  return text;
}

}  // namespace

std::vector<std::string> adapter_targets(const ModelConfig& config) {
  std::vector<std::string> targets;
  if (has_joint_qkv(config))
    targets = {"qkv"};
  else
    targets = {"query", "key", "value"};
  targets.emplace_back("output");
  if (config.ffn == FeedForward::swiglu) targets.emplace_back("gate");
  targets.emplace_back("up");
  targets.emplace_back("down");
  return targets;
}

AdapterConfig validated(const ModelConfig& config, AdapterConfig adapter) {
  const int64_t most = std::min({config.width, config.ffn_width, config.encoder_side().ffn_width});
  require_argument(adapter.rank >= 1 && adapter.rank <= most, kAdapterConfigOrigin, "rank",
                   " must be 1 to ", most, " for this model, got ", adapter.rank);
  require_argument(std::isfinite(adapter.alpha) && adapter.alpha > 0, kAdapterConfigOrigin, "alpha",
                   " must be above 0, got ", adapter.alpha);
  const std::vector<std::string> known = adapter_targets(config);
  for (const std::string& target : adapter.targets)
    require_argument(std::find(known.begin(), known.end(), target) != known.end(),
                     kAdapterConfigOrigin, "targets", " has ", quote(target),
                     ", which is not in this model; it has ", joined(known));
  std::vector<std::string> ordered;
  for (const std::string& target : known)
    if (adapter.targets.empty() ||
        std::find(adapter.targets.begin(), adapter.targets.end(), target) != adapter.targets.end())
      ordered.push_back(target);
  adapter.targets = std::move(ordered);
  return adapter;
}

std::string to_json(const AdapterConfig& adapter) {
  Json json;
  json["rank"] = adapter.rank;
  json["alpha"] = adapter.alpha;
  json["targets"] = Json(adapter.targets);
  return json.dump();
}

AdapterConfig adapter_config_from_json(const std::string& text, const std::string& label) {
  const Json json = parse_json(text, kAdapterConfigOrigin, label);
  const JsonFields fields(json, kAdapterConfigOrigin, label);
  AdapterConfig adapter;
  fields.take("rank", adapter.rank);
  fields.take("alpha", adapter.alpha);
  const auto* targets = fields.at("targets").as<Json::List>();
  require(targets != nullptr && !targets->empty(), ErrorCode::corrupt_file, kAdapterConfigOrigin,
          label, ": the adapter has no list of targets");
  for (const Json& target : *targets) {
    fields.convert(target, "targets", adapter.targets.emplace_back());
    require(adapter.targets.back().size() <= limits::kNameBytes, ErrorCode::corrupt_file,
            kAdapterConfigOrigin, label, ": a target of the adapter has ",
            adapter.targets.back().size(), " bytes");
  }
  return adapter;
}

std::string describe(const std::optional<AdapterConfig>& adapter) {
  if (!adapter) return "no adapter";
  return concat("an adapter of rank ", adapter->rank, ", alpha ", adapter->alpha, " in ",
                joined(adapter->targets));
}

std::vector<AdapterSite> adapter_sites(const ModelConfig& config, const AdapterConfig& adapter) {
  Sites sites(config, adapter.targets);
  const std::vector<int64_t> decoder = distinct_layers(config.decoder_sharing());
  for (const int64_t i : distinct_layers(config.encoder_sharing()))
    sites.block(config.encoder_side(), "encoder." + std::to_string(i), false);
  for (const int64_t i : decoder)
    sites.block(config, "decoder." + std::to_string(i), config.has_encoder());
  if (config.has_encoder()) {
    std::vector<Sites::Part> parts;
    for (const int64_t i : decoder)
      for (const char* target : {"key", "value"})
        parts.push_back({target, config.kv_width(), "decoder." + std::to_string(i) + ".cross"});
    sites.matrix("decoder.cross_kv", config.width, parts);
  }
  return sites.take();
}

}  // namespace trafo
