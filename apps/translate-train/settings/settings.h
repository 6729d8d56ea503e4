// The settings of a training run by name. They come from defaults, the run directory, a YAML file
// and the command line; each is stronger than the one before. Their words become values once, where
// they are read.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "settings/generated/settings.h"

namespace translate_train {

// The range of a number; `text` says it in words.
struct Bounds {
  const char* text = nullptr;  // "at least 0 and below 1"; null: anything
  double low = 0, high = 0;
  bool low_inside = true, high_inside = true;
  bool zero = false;  // 0 is allowed as well
};

// The values of all settings. The structs of the library begin with its defaults.
struct Values {
  Values();
  trafo_model_config model;
  trafo_trainer_options trainer;
  trafo_translate_options translate;
  trafo_evaluation_options evaluation;
  ProgramSettings program;
};

// The place of a value in Values.
struct Metrics {
  int32_t *all, *first;
};
using Layers = uint8_t (*)[TRAFO_TIED_LAYERS];
using Slot = std::variant<int32_t*, int64_t*, uint64_t*, double*, trafo_period*, Layers, Metrics,
                          std::string*, std::vector<std::string>*, std::vector<double>*,
                          std::vector<RunLimit>*>;

// Kinds of values whose slots have one type (setting_values.cc).
enum class SettingKind {
  plain,   // a number (500k, 2M), on or off, a text, or a list
  bytes,   // 800MiB
  share,   // a number, on (Marian's share) or off
  choice,  // the number of a word
};
enum class SettingSource { model, trainer, translate, evaluation, program };

// The table follows from schema (generated/settings.cc).
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
  SettingSource source;
  SettingKind kind;
  Slot (*slot)(Values& values);
  Bounds bounds;                       // of an integer or a real
  std::span<const char* const> words;  // of a choice, each with its aliases as "name|alias"
};
std::span<const SettingSpec> all_specs();        // by Setting
std::span<const SettingSpec> setting_specs();    // of `train`
std::span<const SettingSpec> translate_specs();  // of `translate`
std::span<const SettingSpec> eval_specs();       // of `eval`
inline const SettingSpec& spec_of(Setting setting) {
  return all_specs()[static_cast<size_t>(setting)];
}
inline Setting setting_of(const SettingSpec& spec) {
  return static_cast<Setting>(&spec - all_specs().data());
}
// By name or long alias, without dashes; null if no setting has it.
const SettingSpec* find_setting(std::string_view name);
// "--lr,--rate" is two names.
std::vector<std::string> names_in(std::string_view list);
size_t edit_distance(std::string_view a, std::string_view b);
// By edit distance.
std::string nearest(std::string_view name, std::span<const std::string> candidates);
// ", did you mean NAME?" if a name is close; else nothing.
std::string suggestion(const std::string& word, std::span<const std::string> names);

class Settings : public Values {
 public:
  // Throws a usage error that names the origin ("--learn-rate", "run.yml:12").
  void set(Setting setting, const std::vector<std::string>& words, std::string origin);
  // After a value was written.
  void mark(Setting setting, std::string origin) { origin_of(setting) = std::move(origin); }
  // Where nothing has been set yet.
  void set_default(Setting setting, const std::vector<std::string>& words);
  void take_default(Setting setting, const Values& from);
  void unset(Setting setting);
  bool has(Setting setting) const { return !origins_[static_cast<size_t>(setting)].empty(); }
  // Values of `stronger` replace those here.
  void overlay(const Settings& stronger);
  // Writes the options of the library that have been set.
  void fill(Values& to) const;
  [[noreturn]] void refuse(Setting setting, const std::string& reason) const;

  // ORIGIN:LINE in every error: unknown keys with what serves instead, wrong values, keys given
  // twice.
  static Settings from_yaml(const std::string& path);
  // Every setting that belongs to the run, grouped; `place`: and where it goes.
  std::string to_yaml(bool place = false) const;

 private:
  std::string& origin_of(Setting setting) { return origins_[static_cast<size_t>(setting)]; }
  std::array<std::string, kSettingCount> origins_{};  // empty: not set
};

// A usage error about a value of the setting `name`.
[[noreturn]] void refuse_value(const std::string& name, const std::string& origin,
                               const std::string& reason);
// A setting in the words that set it.
std::vector<std::string> words_of(Setting setting, const Values& values);
std::string text_of(Setting setting, const Values& values);  // the same with blanks between
std::string text_of(const RunLimit& limit);
// The value of a setting goes from one to the other.
void copy_value(Setting setting, const Values& from, Values& to);
// The setting's value by its words. Throws a usage error that begins with `origin`.
void read_value(Setting setting, const std::vector<std::string>& words, const std::string& origin,
                Values& to);

// "500k" and "2M" are 500,000 and 2,000,000.
bool parse_count(std::string_view text, int64_t& out);
// "4GiB", "500MB", "1000": bytes.
bool parse_bytes(std::string_view text, int64_t& out);
// "1000u", "2Mt", "10e"; no unit means updates.
bool parse_period(std::string_view text, trafo_period& out);

}  // namespace translate_train
