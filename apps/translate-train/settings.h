// The settings of a training run by name: from defaults, the run directory, a YAML file and the
// command line, each stronger than the one before.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace translate_train {

struct SettingSpec {
  const char* name;     // without dashes; also the key in config.yml
  const char* aliases;  // other names, comma separated, with dashes; long ones are keys as well
  const char* group;
  const char* values;  // shown in the help
  const char* help;
  int min_values, max_values;
  bool in_run;  // written to config.yml
};
std::span<const SettingSpec> setting_specs();
// By name or long alias, without dashes; null if there is none.
const SettingSpec* find_setting(std::string_view name);
size_t edit_distance(std::string_view a, std::string_view b);
// By edit distance.
std::string nearest(std::string_view name, std::span<const std::string> candidates);
std::string nearest_setting(std::string_view name);

class Settings {
 public:
  struct Value {
    std::vector<std::string> values;
    std::string origin;  // "--learn-rate", "run.yml:12"
  };

  void set(const std::string& name, std::vector<std::string> values, std::string origin);
  // Where nothing has been set yet.
  void set_default(const std::string& name, std::vector<std::string> values);
  void unset(const std::string& name) { values_.erase(name); }
  bool has(const std::string& name) const { return values_.contains(name); }
  // Values of `stronger` replace those here.
  void overlay(const Settings& stronger);

  // All throw a usage error that names the origin. `has` must hold.
  const std::vector<std::string>& list(const std::string& name) const;
  const std::string& text(const std::string& name) const;
  int64_t integer(const std::string& name) const;
  double real(const std::string& name) const;
  std::vector<double> reals(const std::string& name) const;
  bool flag(const std::string& name) const;  // on, off, true, false
  // One of `names`; returns its index.
  int choice(const std::string& name, std::span<const char* const> names) const;
  [[noreturn]] void refuse(const std::string& name, const std::string& reason) const;

  // ORIGIN:LINE in every error: unknown keys with the nearest known one, wrong kinds of values,
  // keys given twice.
  static Settings from_yaml(const std::string& path);
  // Every setting that belongs to the run, grouped; `place`: and where it goes.
  std::string to_yaml(bool place = false) const;

 private:
  std::map<std::string, Value> values_;
};

// "500k" and "2M" are 500,000 and 2,000,000.
bool parse_count(std::string_view text, int64_t& out);
// "4GiB", "500MB", "1000": bytes.
bool parse_bytes(std::string_view text, int64_t& out);

}  // namespace translate_train
