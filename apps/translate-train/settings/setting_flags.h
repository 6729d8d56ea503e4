// Settings as flags of a subcommand.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "settings/settings.h"

namespace translate_train {

// The words that were given to each flag, by its name with dashes.
using FlagValues = std::map<std::string, std::vector<std::string>>;

// Adds the flag with its aliases.
CLI::Option* add_setting(CLI::App& app, const SettingSpec& spec, FlagValues& values);
// The settings of `specs` that the command line has. Throws usage errors.
Settings given_settings(const CLI::App& app, std::span<const SettingSpec> specs,
                        const FlagValues& values);
Settings given_settings(const CLI::App& app, std::span<const SettingSpec* const> specs,
                        const FlagValues& values);

}  // namespace translate_train
