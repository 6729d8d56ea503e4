#include "engine/models/adapter_config.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

#include "engine/core/argument_error.h"
#include "engine/core/limits.h"
#include "engine/core/strings/json.h"
#include "engine/io/safetensors_header.h"
#include "engine/models/model.h"

namespace trafo {
namespace {

constexpr const char* kAdapterConfigOrigin = "adapter";

// GPT-2's and ModernBERT's layers: one projection makes queries, keys and values, and in ModernBERT
// another one gate and up.
bool has_joint_qkv(const ModelSpec& spec) {
  const bool gated = spec.decoder.feed_forward.gated;
  return (spec.architecture == Architecture::decoder_lm && !gated) ||
         (spec.architecture == Architecture::encoder && gated);
}

// The targets by their roles.
constexpr std::pair<Role, const char*> kTargets[] = {
    {Role::query, "query"}, {Role::key, "key"}, {Role::value, "value"}, {Role::output, "output"},
    {Role::gate, "gate"},   {Role::up, "up"},   {Role::down, "down"}};
constexpr const char *kJointTarget = "qkv", *kJointGate = "gate_up";

// The projections of a matrix, in the order of their rows.
std::vector<AdapterModule> modules_of(const ParameterParts& parts, bool joint) {
  std::vector<AdapterModule> modules;
  for (const Part& part : parts.rows) {
    const auto target = std::find_if(std::begin(kTargets), std::end(kTargets),
                                     [&](const auto& known) { return known.first == part.role; });
    require(target != std::end(kTargets), ErrorCode::internal, kAdapterConfigOrigin,
            "a linear layer has a part that is no target");
    modules.push_back({target->second, part.place, {part.first, part.rows}});
  }
  const Role first = parts.rows.front().role;
  if (!joint || (first != Role::query && first != Role::gate)) return modules;
  const int64_t rows = modules.back().range.first + modules.back().range.count;
  return {{first == Role::query ? kJointTarget : kJointGate, modules.front().place, {0, rows}}};
}

// All projections of the linear layers of a model.
std::vector<AdapterSite> all_sites(const Model& model) {
  const ParameterStore& parameters = model.parameters();
  std::vector<AdapterSite> sites;
  for (size_t i = 0; i < parameters.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    const ParameterParts& parts = parameters.parts(id);
    if (!parameters.prunable(id) || parts.piece != Piece::weight) continue;
    sites.push_back({id, parameters.shape(id)[1], modules_of(parts, has_joint_qkv(model.spec()))});
  }
  return sites;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : " ") + name;
  return text;
}

}  // namespace

std::vector<std::string> adapter_targets(const Model& model) {
  std::set<std::string> found;
  for (const AdapterSite& site : all_sites(model))
    for (const AdapterModule& module : site.modules) found.insert(module.target);
  std::vector<std::string> targets;
  if (found.contains(kJointTarget)) targets.emplace_back(kJointTarget);
  for (const auto& [role, target] : kTargets) {
    if (role == Role::gate && found.contains(kJointGate)) targets.emplace_back(kJointGate);
    if (found.contains(target)) targets.emplace_back(target);
  }
  return targets;
}

AdapterConfig validated(const Model& model, AdapterConfig adapter) {
  const ModelSpec& spec = model.spec();
  int64_t most = std::min(spec.width(), spec.decoder.feed_forward.width);
  if (spec.encoder) most = std::min(most, spec.encoder->feed_forward.width);
  require_argument(adapter.rank >= 1 && adapter.rank <= most, kAdapterConfigOrigin, "rank",
                   " must be 1 to ", most, " for this model, got ", adapter.rank);
  require_argument(std::isfinite(adapter.alpha) && adapter.alpha > 0, kAdapterConfigOrigin, "alpha",
                   " must be above 0, got ", adapter.alpha);
  const std::vector<std::string> known = adapter_targets(model);
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

std::vector<AdapterSite> adapter_sites(const Model& model, const AdapterConfig& adapter) {
  std::vector<AdapterSite> sites = all_sites(model);
  for (AdapterSite& site : sites)
    std::erase_if(site.modules, [&](const AdapterModule& module) {
      return std::find(adapter.targets.begin(), adapter.targets.end(), module.target) ==
             adapter.targets.end();
    });
  std::erase_if(sites, [](const AdapterSite& site) { return site.modules.empty(); });
  return sites;
}

}  // namespace trafo
