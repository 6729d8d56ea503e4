// The settings of a training run by name. They come from defaults, the run directory, a YAML file
// and the command line; each is stronger than the one before.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace translate_train {

// The table follows from schema/ (generated/settings.cc).
struct SettingSpec {
  const char* name;     // without dashes: also the key in YAML
  const char* aliases;  // other names, comma separated, with dashes; long ones are keys as well
  const char* group;
  const char* values;  // shown in the help
  const char* help;
  const char* completions;  // values that a shell offers, separated by blanks
  int min_values, max_values;
  bool in_run;                // written to config.yml
  bool in_plan;               // decides how much memory training takes: a flag of `plan`
  const char* default_value;  // of what only this program has; null: none, or the library's
};
std::span<const SettingSpec> setting_specs();    // of `train`
std::span<const SettingSpec> translate_specs();  // of `translate`
std::span<const SettingSpec> eval_specs();       // of `eval`
// By name or long alias, without dashes; null if there is none.
const SettingSpec* find_setting(std::string_view name);
// "--lr,--rate" is two names.
std::vector<std::string> names_in(std::string_view list);
size_t edit_distance(std::string_view a, std::string_view b);
// By edit distance.
std::string nearest(std::string_view name, std::span<const std::string> candidates);
// ", did you mean NAME?" if a name is close; else nothing.
std::string suggestion(const std::string& word, std::span<const std::string> names);

// What a number may be: the words of `text`.
struct Bounds {
  const char* text;  // "at least 0 and below 1"
  double low, high;
  bool low_inside = true, high_inside = true;
  bool zero = false;  // 0 is allowed as well
};

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
  int64_t integer(const std::string& name, const Bounds& bounds) const;
  uint64_t seed(const std::string& name) const;
  int64_t bytes(const std::string& name) const;  // "800MiB"
  double real(const std::string& name) const;
  double real(const std::string& name, const Bounds& bounds) const;
  std::vector<double> reals(const std::string& name) const;
  bool flag(const std::string& name) const;  // on, off, true, false
  // One of `names`, each with its aliases as "name|alias"; returns its index.
  int choice(const std::string& name, std::span<const char* const> names) const;
  [[noreturn]] void refuse(const std::string& name, const std::string& reason) const;

  // ORIGIN:LINE in every error: unknown keys with what serves instead, wrong kinds of values,
  // keys given twice.
  static Settings from_yaml(const std::string& path);
  // Every setting that belongs to the run, grouped; `place`: and where it goes.
  std::string to_yaml(bool place = false) const;

 private:
  std::map<std::string, Value> values_;
};

// "inv-sqrt" of "inv-sqrt|inverse_sqrt".
std::string first_name(std::string_view names);

// "500k" and "2M" are 500,000 and 2,000,000.
bool parse_count(std::string_view text, int64_t& out);
// "4GiB", "500MB", "1000": bytes.
bool parse_bytes(std::string_view text, int64_t& out);

}  // namespace translate_train
