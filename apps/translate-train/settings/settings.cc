#include "settings/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "commands/cli_error.h"
#include "settings/foreign_flags.h"
#include "settings/yaml_file.h"

namespace translate_train {
namespace {

bool is_inside(double value, const Bounds& bounds) {
  if (bounds.zero && value == 0) return true;
  return (bounds.low_inside ? value >= bounds.low : value > bounds.low) &&
         (bounds.high_inside ? value <= bounds.high : value < bounds.high);
}

}  // namespace

std::vector<std::string> names_in(std::string_view list) {
  std::vector<std::string> names;
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    names.emplace_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

std::string first_name(std::string_view names) {
  return std::string(names.substr(0, names.find('|')));
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

bool parse_count(std::string_view text, int64_t& out) {
  int64_t factor = 1;
  if (!text.empty()) {
    const char last = text.back();
    factor = last == 'k' || last == 'K' ? 1000
             : last == 'M'              ? 1000000
             : last == 'G'              ? 1000000000
                                        : 1;
    if (factor != 1) text.remove_suffix(1);
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return false;
  return !__builtin_mul_overflow(out, factor, &out);
}

bool parse_bytes(std::string_view text, int64_t& out) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  static constexpr std::pair<std::string_view, double> kUnits[] = {
      {"", 1},     {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40},
      {"kB", 1e3}, {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12}};
  for (const auto& [unit, factor] : kUnits) {
    if (text != unit) continue;
    value *= factor;
    if (!(value >= 0 && value < 0x1p62)) return false;
    out = static_cast<int64_t>(value);
    return true;
  }
  return false;
}

void Settings::set(const std::string& name, std::vector<std::string> values, std::string origin) {
  values_[name] = {std::move(values), std::move(origin)};
}

void Settings::set_default(const std::string& name, std::vector<std::string> values) {
  values_.try_emplace(name, Value{std::move(values), "default of --" + name});
}

void Settings::overlay(const Settings& stronger) {
  for (const auto& [name, value] : stronger.values_) values_[name] = value;
}

void Settings::refuse(const std::string& name, const std::string& reason) const {
  const auto found = values_.find(name);
  const std::string origin = found == values_.end() ? "--" + name : found->second.origin;
  // "run.yml:3" does not say which setting it is.
  if (origin.find(name) == std::string::npos) usage_error(origin + " " + name + ": " + reason);
  usage_error(origin + ": " + reason);
}

const std::vector<std::string>& Settings::list(const std::string& name) const {
  return values_.at(name).values;
}

const std::string& Settings::text(const std::string& name) const {
  const auto& values = list(name);
  if (values.size() != 1 || values[0].empty()) refuse(name, "wants one value");
  return values[0];
}

int64_t Settings::integer(const std::string& name) const {
  int64_t value = 0;
  if (!parse_count(text(name), value))
    refuse(name, fmt::format("wants a whole number, got '{}'", text(name)));
  return value;
}

int64_t Settings::integer(const std::string& name, const Bounds& bounds) const {
  const int64_t value = integer(name);
  if (!is_inside(static_cast<double>(value), bounds))
    refuse(name, fmt::format("must be {}, got {}", bounds.text, value));
  return value;
}

double Settings::real(const std::string& name, const Bounds& bounds) const {
  const double value = real(name);
  if (!is_inside(value, bounds))
    refuse(name, fmt::format("must be {}, got {}", bounds.text, value));
  return value;
}

uint64_t Settings::seed(const std::string& name) const {
  const int64_t value = integer(name);
  if (value < 0) refuse(name, "must be at least 0");
  return static_cast<uint64_t>(value);
}

int64_t Settings::bytes(const std::string& name) const {
  int64_t value = 0;
  if (!parse_bytes(text(name), value))
    refuse(name, fmt::format("wants a size as 800MiB or 4GiB, got '{}'", text(name)));
  return value;
}

double Settings::real(const std::string& name) const {
  const std::string& word = text(name);
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size() || !std::isfinite(value))
    refuse(name, fmt::format("wants a number, got '{}'", word));
  return value;
}

std::vector<double> Settings::reals(const std::string& name) const {
  std::vector<double> result;
  for (const std::string& word : list(name)) {
    double& value = result.emplace_back();
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || end != word.data() + word.size() || !std::isfinite(value))
      refuse(name, fmt::format("wants numbers, got '{}'", word));
  }
  return result;
}

bool Settings::flag(const std::string& name) const {
  const auto& values = list(name);
  if (values.empty() || values[0].empty()) return true;  // given without a value
  const std::string& word = values[0];
  if (word == "on" || word == "true") return true;
  if (word == "off" || word == "false") return false;
  refuse(name, fmt::format("wants on or off, got '{}'", word));
}

int Settings::choice(const std::string& name, std::span<const char* const> names) const {
  std::string known;
  const std::string wanted = '|' + text(name) + '|';
  for (size_t i = 0; i < names.size(); ++i) {
    if (('|' + std::string(names[i]) + '|').find(wanted) != std::string::npos)
      return static_cast<int>(i);
    known += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + first_name(names[i]);
  }
  refuse(name, fmt::format("wants {}, got '{}'", known, text(name)));
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
    if (settings.has(spec->name))
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
    settings.set(key, std::move(values), where);
  }
  return settings;
}

std::string Settings::to_yaml(bool place) const {
  YAML::Emitter out;
  out << YAML::Comment("Every setting of this run. Continuing takes them from here.");
  out << YAML::BeginMap;
  const char* group = "";
  for (const SettingSpec& spec : setting_specs()) {
    const auto found = values_.find(spec.name);
    if ((!spec.in_run && !(place && std::string_view(spec.name) == "model")) ||
        found == values_.end())
      continue;
    if (group != spec.group) out << YAML::Newline << YAML::Comment(spec.group);
    group = spec.group;
    out << YAML::Key << spec.name << YAML::Value;
    const auto& values = found->second.values;
    if (spec.max_values > 1) {
      out << YAML::Flow << YAML::BeginSeq;
      for (const std::string& value : values) out << value;
      out << YAML::EndSeq;
    } else {
      out << (values.empty() || values[0].empty() ? std::string("on") : values[0]);
    }
  }
  out << YAML::EndMap;
  return std::string(out.c_str()) + "\n";
}

}  // namespace translate_train
