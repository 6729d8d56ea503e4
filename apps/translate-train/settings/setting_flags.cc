#include "settings/setting_flags.h"

namespace translate_train {

CLI::Option* add_setting(CLI::App& app, const SettingSpec& spec, FlagValues& values) {
  const std::string flag = "--" + std::string(spec.name);
  const std::string aliases = spec.aliases;
  FlagValue& value = values[flag];
  value.setting = setting_of(spec);
  return app.add_option(aliases.empty() ? flag : flag + "," + aliases, value.words, spec.help)
      ->expected(spec.min_values, spec.max_values)
      ->type_name(spec.values)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group(spec.group);
}

Settings given_settings(const CLI::App& app, const FlagValues& values) {
  Settings settings;
  for (const auto& [flag, value] : values)
    if (app.count(flag) > 0) settings.set(value.setting, value.words, flag);
  return settings;
}

}  // namespace translate_train
