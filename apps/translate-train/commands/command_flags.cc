#include "commands/command_flags.h"

#include <algorithm>

#include "settings/settings.h"

namespace translate_train {
namespace {

// Commands share the names of what train, translate and eval have.
std::string choices_of(const std::string& name) {
  for (const SettingSpec& spec : all_specs())
    if (name == spec.name) return spec.completions;
  return {};
}

// CLI11 writes the choices of a value after its name: NAME:{one,two}.
std::string checked_choices(const std::string& type_name) {
  const size_t begin = type_name.find(":{");
  if (begin == std::string::npos || type_name.back() != '}') return {};
  std::string words = type_name.substr(begin + 2, type_name.size() - begin - 3);
  std::ranges::replace(words, ',', ' ');
  return words;
}

std::vector<Flag> options_of(const CLI::App& app, bool positional) {
  std::vector<Flag> flags;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty() || option->get_positional() != positional) continue;
    Flag flag;
    if (positional) flag.names.push_back(option->get_name());
    for (const std::string& name : option->get_lnames()) flag.names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) flag.names.push_back("-" + name);
    flag.help = option->get_description();
    flag.group = option->get_group();
    if (option->get_items_expected_max() > 0) {
      flag.value = option->get_type_name();
      flag.choices = checked_choices(flag.value);
      for (const std::string& name : option->get_lnames())
        if (flag.choices.empty()) flag.choices = choices_of(name);
    }
    flags.push_back(flag);
  }
  return flags;
}

}  // namespace

std::vector<Flag> flags_of(const CLI::App& app) {
  return options_of(app, false);
}

std::vector<Flag> arguments_of(const CLI::App& app) {
  return options_of(app, true);
}

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* command) { return !command->get_group().empty(); });
}

std::string joined(const std::vector<std::string>& words, const std::string& between) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

}  // namespace translate_train
