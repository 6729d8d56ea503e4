// Shell completion.
#include <fmt/format.h>

#include "commands/command_flags.h"
#include "commands/commands.h"
#include "text/text_io.h"

namespace translate_train {
namespace {

std::string words_of(const std::vector<Flag>& flags) {
  std::vector<std::string> words;
  for (const Flag& flag : flags) words.insert(words.end(), flag.names.begin(), flag.names.end());
  return joined(words, " ");
}

// In single quotes for every shell: what would end them is left out.
std::string quotable(std::string text, const std::string& without) {
  std::erase_if(text, [&](char c) { return without.find(c) != std::string::npos; });
  return text;
}

std::string bash(const CLI::App& app) {
  std::string commands, cases, values;
  for (const CLI::App* command : commands_of(app)) {
    const std::vector<Flag> flags = flags_of(*command);
    commands += command->get_name() + " ";
    cases += fmt::format("    {}) words='{}' ;;\n", command->get_name(), words_of(flags));
    for (const Flag& flag : flags)
      if (!flag.choices.empty())
        values += fmt::format("    '{0} '{1}) values='{2}' ;;\n", command->get_name(),
                              joined(flag.names, fmt::format(" | '{} '", command->get_name())),
                              flag.choices);
    for (const Flag& argument : arguments_of(*command))
      if (!argument.choices.empty())
        values +=
            fmt::format("    '{0} {0}') values='{1}' ;;\n", command->get_name(), argument.choices);
  }
  // The function offers nothing for a word that is no flag, so the shell completes a file name.
  return fmt::format(R"(_translate_train() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}}
  local command= words= values= i
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case ${{COMP_WORDS[i]}} in
      -*) ;;
      *) command=${{COMP_WORDS[i]}}; break ;;
    esac
  done
  COMPREPLY=()
  case $command in
    '') words='{}{}' ;;
{}  esac
  case "$command $previous" in
{}  esac
  if [[ $word == -* || -z $command ]]; then
    COMPREPLY=($(compgen -W "$words" -- "$word"))
  elif [[ -n $values ]]; then
    COMPREPLY=($(compgen -W "$values" -- "$word"))
  fi
}}
complete -o default -F _translate_train translate-train
)",
                     commands, words_of(flags_of(app)), cases, values);
}

std::string zsh(const CLI::App& app) {
  std::string commands, cases;
  for (const CLI::App* command : commands_of(app)) {
    commands += fmt::format("    '{}:{}'\n", command->get_name(),
                            quotable(command->get_description(), "':"));
    std::string arguments;
    for (const Flag& flag : flags_of(*command))
      for (const std::string& name : flag.names)
        arguments += fmt::format(
            " \\\n        '*{}[{}]{}'", name, quotable(flag.help, "'[]:\\"),
            flag.value.empty()
                ? ""
                : fmt::format(":{}:{}", quotable(flag.value, "'[]:\\"),
                              flag.choices.empty() ? "_files" : "(" + flag.choices + ")"));
    std::string rest = "_files";
    for (const Flag& argument : arguments_of(*command))
      if (!argument.choices.empty()) rest = "(" + argument.choices + ")";
    cases += fmt::format("    {})\n      _arguments{} \\\n        '*:file:{}' ;;\n",
                         command->get_name(), arguments, rest);
  }
  return fmt::format(R"(#compdef translate-train
_translate_train() {{
  local -a commands
  commands=(
{}  )
  if ((CURRENT == 2)); then
    _describe command commands
    return
  fi
  local command=$words[2]
  shift words
  ((--CURRENT))
  case $command in
{}  esac
}}
compdef _translate_train translate-train
)",
                     commands, cases);
}

std::string fish(const CLI::App& app) {
  std::string text = "complete -c translate-train -n __fish_use_subcommand -f\n";
  for (const CLI::App* command : commands_of(app)) {
    text += fmt::format("complete -c translate-train -n __fish_use_subcommand -a {} -d '{}'\n",
                        command->get_name(), quotable(command->get_description(), "'\\"));
    for (const Flag& argument : arguments_of(*command))
      if (!argument.choices.empty())
        text += fmt::format(
            "complete -c translate-train -n '__fish_seen_subcommand_from {}' -f -a '{}'\n",
            command->get_name(), argument.choices);
    for (const Flag& flag : flags_of(*command)) {
      text += fmt::format("complete -c translate-train -n '__fish_seen_subcommand_from {}'",
                          command->get_name());
      for (const std::string& name : flag.names)
        text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      if (!flag.choices.empty()) text += fmt::format(" -x -a '{}'", flag.choices);
      text +=
          fmt::format("{} -d '{}'\n", flag.value.empty() ? "" : " -r", quotable(flag.help, "'\\"));
    }
  }
  return text;
}

}  // namespace

Action add_completion(CLI::App& app) {
  auto shell = std::make_shared<std::string>();
  app.add_option("SHELL", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}))
      ->type_name("");
  app.footer(
      "bash: source <(translate-train completion bash), in ~/.bashrc to have it always\n"
      "zsh:  source <(translate-train completion zsh), after compinit\n"
      "fish: translate-train completion fish > ~/.config/fish/completions/translate-train.fish");
  return [&app, shell] {
    const CLI::App& program = *app.get_parent();
    std::string text = *shell == "bash"  ? bash(program)
                       : *shell == "zsh" ? zsh(program)
                                         : fish(program);
    text.pop_back();  // the writer ends the line
    LineWriter out("-");
    out.write(text);
    out.finish();
    return static_cast<int>(kDone);
  };
}

}  // namespace translate_train
