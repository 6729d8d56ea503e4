#include "settings/setting_flags.h"

namespace translate_train {

CLI::Option* add_setting(CLI::App& app, const SettingSpec& spec, FlagValues& values) {
  const std::string flag = "--" + std::string(spec.name);
  const std::string aliases = spec.aliases;
  return app.add_option(aliases.empty() ? flag : flag + "," + aliases, values[flag], spec.help)
      ->expected(spec.min_values, spec.max_values)
      ->type_name(spec.values)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group(spec.group);
}

Settings given_settings(const CLI::App& app, std::span<const SettingSpec> specs,
                        const FlagValues& values) {
  std::vector<const SettingSpec*> all;
  for (const SettingSpec& spec : specs) all.push_back(&spec);
  return given_settings(app, all, values);
}

Settings given_settings(const CLI::App& app, std::span<const SettingSpec* const> specs,
                        const FlagValues& values) {
  Settings settings;
  for (const SettingSpec* spec : specs) {
    const std::string flag = "--" + std::string(spec->name);
    if (const auto given = values.find(flag); given != values.end() && app.count(flag) > 0)
      settings.set(setting_of(*spec), given->second, flag);
  }
  return settings;
}

}  // namespace translate_train
