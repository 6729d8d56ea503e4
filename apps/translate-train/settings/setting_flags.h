// Settings as flags of a subcommand.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <vector>

#include "settings/settings.h"

namespace translate_train {

// The words that were given to each flag of a setting, by its name with dashes.
struct FlagValue {
  Setting setting{};
  std::vector<std::string> words = {};
};
using FlagValues = std::map<std::string, FlagValue>;

// Adds the flag with its aliases.
CLI::Option* add_setting(CLI::App& app, const SettingSpec& spec, FlagValues& values);
// The settings that the command line has. Throws usage errors.
Settings given_settings(const CLI::App& app, const FlagValues& values);

}  // namespace translate_train
