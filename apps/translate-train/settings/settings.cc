#include "settings/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "commands/cli_error.h"
#include "settings/foreign_flags.h"
#include "settings/yaml_file.h"

namespace translate_train {
std::vector<std::string> names_in(std::string_view list) {
  std::vector<std::string> names;
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    names.emplace_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({changed, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

const SettingSpec* find_setting(std::string_view name) {
  const std::string flag = "--" + std::string(name);
  for (const SettingSpec& spec : setting_specs()) {
    if (name == spec.name) return &spec;
    for (const std::string& other : names_in(spec.aliases))
      if (other == flag) return &spec;
  }
  return nullptr;
}

std::string nearest(std::string_view name, std::span<const std::string> candidates) {
  std::string best;
  size_t distance = SIZE_MAX;
  for (const std::string& candidate : candidates) {
    const size_t d = edit_distance(name, candidate);
    if (d < distance) distance = d, best = candidate;
  }
  return best;
}

std::string suggestion(const std::string& word, std::span<const std::string> names) {
  const std::string best = nearest(word, names);
  const bool close = edit_distance(word, best) <= std::max<size_t>(2, word.size() / 3);
  return close ? ", did you mean " + best + "?" : "";
}

void Settings::set(Setting setting, const std::vector<std::string>& words, std::string origin) {
  read_value(setting, words, origin, *this);
  mark(setting, std::move(origin));
}

void Settings::set_default(Setting setting, const std::vector<std::string>& words) {
  if (!has(setting)) set(setting, words, std::string("default of --") + spec_of(setting).name);
}

void Settings::take_default(Setting setting, const Values& from) {
  if (has(setting)) return;
  copy_value(setting, from, *this);
  mark(setting, std::string("default of --") + spec_of(setting).name);
}

void Settings::unset(Setting setting) {
  copy_value(setting, Values(), *this);
  origin_of(setting).clear();
}

void Settings::overlay(const Settings& stronger) {
  for (size_t i = 0; i < kSettingCount; ++i) {
    const auto setting = static_cast<Setting>(i);
    if (!stronger.has(setting)) continue;
    copy_value(setting, stronger, *this);
    mark(setting, stronger.origins_[i]);
  }
}

void Settings::fill(Values& to) const {
  for (size_t i = 0; i < kSettingCount; ++i) {
    const auto setting = static_cast<Setting>(i);
    if (has(setting)) copy_value(setting, *this, to);
  }
}

void Settings::refuse(Setting setting, const std::string& reason) const {
  const std::string& origin = origins_[static_cast<size_t>(setting)];
  const std::string name = spec_of(setting).name;
  refuse_value(name, origin.empty() ? "--" + name : origin, reason);
}

Settings Settings::from_yaml(const std::string& path) {
  YAML::Node root;
  try {
    root = load_yaml(path);
  } catch (const YAML::BadFile&) {
    usage_error(path + ": cannot be read");
  } catch (const YAML::Exception& error) {
    usage_error(fmt::format("{}:{} {}", path, error.mark.line + 1, error.msg));
  }
  Settings settings;
  if (root.IsNull()) return settings;
  if (!root.IsMap()) usage_error(fmt::format("{}:1 wants lines like 'learn-rate: 0.001'", path));
  for (const auto& entry : root) {
    const std::string where = fmt::format("{}:{}", path, entry.first.Mark().line + 1);
    const std::string given = entry.first.IsScalar() ? entry.first.Scalar() : "";
    const SettingSpec* spec = find_setting(given);
    if (spec == nullptr) {
      if (const ForeignFlag* foreign = find_foreign_flag("train", "--" + given))
        usage_error(fmt::format("{} no key '{}': {}", where, given, foreign->instead));
      std::vector<std::string> names;
      for (const SettingSpec& each : setting_specs()) names.emplace_back(each.name);
      usage_error(fmt::format("{} unknown key '{}'{}", where, given, suggestion(given, names)));
    }
    const std::string key = spec->name;
    if (settings.has(setting_of(*spec)))
      usage_error(fmt::format("{} key '{}' is given twice", where, key));
    std::vector<std::string> values;
    if (entry.second.IsScalar()) {
      values.push_back(entry.second.Scalar());
    } else if (entry.second.IsSequence()) {
      for (const auto& item : entry.second) {
        if (!item.IsScalar()) usage_error(fmt::format("{} {}: wants plain values", where, key));
        values.push_back(item.Scalar());
      }
    } else {
      usage_error(fmt::format("{} {}: has no value", where, key));
    }
    const int count = static_cast<int>(values.size());
    if (count < std::max(1, spec->min_values) || count > spec->max_values)
      usage_error(fmt::format("{} {}: wants {} ({})", where, key, spec->values,
                              count == 1 ? "got 1 value" : fmt::format("got {} values", count)));
    settings.set(setting_of(*spec), values, where);
  }
  return settings;
}

std::string Settings::to_yaml(bool place) const {
  YAML::Emitter out;
  out << YAML::Comment("Every setting of this run. Continuing takes them from here.");
  out << YAML::BeginMap;
  const char* group = "";
  for (const SettingSpec& spec : setting_specs()) {
    const Setting setting = setting_of(spec);
    if (!has(setting) || !(spec.in_run || (place && setting == Setting::model))) continue;
    if (group != spec.group) out << YAML::Newline << YAML::Comment(spec.group);
    group = spec.group;
    out << YAML::Key << spec.name << YAML::Value;
    const std::vector<std::string> words = words_of(setting, *this);
    if (spec.max_values > 1)
      out << YAML::Flow << words;
    else
      out << words.at(0);
  }
  out << YAML::EndMap;
  return std::string(out.c_str()) + "\n";
}

}  // namespace translate_train
