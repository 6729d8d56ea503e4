// The commands and flags as they are parsed, for completion and man pages: these cannot know
// others.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace translate_train {

struct Flag {
  std::vector<std::string> names;  // with dashes; of an argument its one name
  std::string help;
  std::string group;
  std::string value;    // what follows it, as the help shows it; empty: nothing
  std::string choices;  // the words that may follow it, separated by blanks; empty: any
};

// Without the names of earlier releases.
std::vector<Flag> flags_of(const CLI::App& app);

// Arguments without a flag, such as COMMAND.
std::vector<Flag> arguments_of(const CLI::App& app);

std::vector<const CLI::App*> commands_of(const CLI::App& app);

std::string joined(const std::vector<std::string>& words, const std::string& between);

}  // namespace translate_train
