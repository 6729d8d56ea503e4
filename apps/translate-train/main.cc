// translate-train: trains and uses translation models from the command line.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <new>
#include <span>

#include "commands/commands.h"
#include "engine/io/atomic_file.h"
#include "engine/os/program.h"
#include "settings/foreign_flags.h"
#include "settings/setting_types.h"
#include "settings/settings.h"
#include "text/terminal_text.h"

namespace translate_train {
namespace {

int fail_with(int code, const std::string& message) {
  // One line, whatever went wrong.
  std::string line;
  for (const char c : message) {
    const bool space = c == '\n' || c == '\r' || c == ' ';
    if (!space)
      line += c;
    else if (!line.empty() && line.back() != ' ')
      line += ' ';
  }
  std::fprintf(stderr, "translate-train: error: %s\n", terminal_text(line).c_str());
  return code;
}

std::vector<std::string> flag_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

// The flag of a command that sets an argument of the library; empty: it has none. Most flags have
// the name of their argument.
std::string flag_of(const CLI::App& command, std::string_view field) {
  static constexpr MemberFlag kTrain[] = {{"vocabulary", "--dim-vocabs"},
                                          {"kind", "--vocab-kind"},
                                          {"rank", "--lora-rank"},
                                          {"alpha", "--lora-alpha"},
                                          {"targets", "--lora-targets"}};
  static constexpr MemberFlag kPrune[] = {
      {"encoder_ffn_share", "--ffn"},    {"decoder_ffn_share", "--ffn"},
      {"encoder_head_share", "--heads"}, {"decoder_head_share", "--heads"},
      {"encoder_layers", "--layers"},    {"decoder_layers", "--layers"}};
  static constexpr MemberFlag kThreads[] = {{"threads", "--cpu-threads"}};
  const std::string& name = command.get_name();
  const bool trains = name == "train" || name == "plan";
  const std::vector<std::string> flags = flag_names(command);
  const std::span<const MemberFlag> own =
      name == "prune" ? std::span<const MemberFlag>(kPrune) : std::span<const MemberFlag>(kTrain);
  for (const auto& members : {own, trains ? member_flags() : decoding_member_flags(),
                              std::span<const MemberFlag>(kThreads)}) {
    const auto found = std::ranges::find(members, field, &MemberFlag::member);
    if (found != members.end() && std::ranges::find(flags, found->flag) != flags.end())
      return found->flag;
  }
  std::string flag = "--" + std::string(field);
  std::ranges::replace(flag, '_', '-');
  return std::ranges::find(flags, flag) != flags.end() ? flag : "";
}

// Errors of the library name the flag.
int run_naming_flags(const CLI::App& command, const Action& action) {
  try {
    return action();
  } catch (const CliError& error) {
    const std::string flag = error.field().empty() ? "" : flag_of(command, error.field());
    if (flag.empty()) throw;
    throw error.with_flag(flag);
  }
}

// CLI11 says which argument was not expected; this adds what could have been meant.
std::string explain(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  if (chosen.empty() && argc > 1 && argv[1][0] != '-') {
    std::vector<std::string> commands;
    for (const CLI::App* each : app.get_subcommands([](const CLI::App*) { return true; }))
      commands.push_back(each->get_name());
    return fmt::format("unknown command {}{}", argv[1], suggestion(argv[1], commands));
  }
  if (dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr || chosen.empty())
    return error.what();
  const CLI::App& command = *chosen[0];
  const std::vector<std::string> unexpected = command.remaining();
  std::string files;
  for (int i = 2; i < argc; ++i) {
    std::string word(argv[i]);
    if (std::find(unexpected.begin(), unexpected.end(), word) == unexpected.end()) continue;
    if (!word.starts_with("-")) {
      files += " " + word;
      continue;
    }
    word = word.substr(0, word.find('='));
    if (const ForeignFlag* foreign = find_foreign_flag(command.get_name(), word))
      return fmt::format("no flag {}: {}", word, foreign->instead);
    return fmt::format("unknown flag {}{}", word, suggestion(word, flag_names(command)));
  }
  if (command.get_name() == "train")
    return fmt::format("unexpected{}, did you mean -t{}?", files, files);
  if (command.get_name() == "translate")
    return fmt::format("unexpected{}, did you mean -i{}?", files, files);
  return error.what();
}

int run(int argc, char** argv) {
  CLI::App app("Trains transformers that translate, and translates with them.", "translate-train");
  const std::string version = std::string("translate-train ") + trafo_version();
  app.set_version_flag("-V,--version", version);
  app.require_subcommand(1);
  app.get_formatter()->column_width(42);
  struct Command {
    const char* name;
    const char* help;
    Action (*add)(CLI::App&);
  };
  static constexpr Command kCommands[] = {
      {"train", "train, or continue where the run directory stopped", add_train},
      {"vocab", "train a vocabulary", add_vocab},
      {"encode", "write text as a file of token ids of llm.c, nanoGPT or Megatron", add_encode},
      {"translate", "translate lines", add_translate},
      {"generate", "continue texts, or answer conversations, with a decoder-only model",
       add_generate},
      {"shortlist", "learn from the training text what translate --shortlist needs", add_shortlist},
      {"score", "log-probability of given pairs, perplexity", add_score},
      {"eval", "BLEU and chrF of translations", add_eval},
      {"embed", "a vector for each line of text", add_embed},
      {"classify", "the label of each line or word, from an encoder with a head for labels",
       add_classify},
      {"average", "the mean of checkpoints", add_average},
      {"quantize", "write a model with int8 or int4 weights", add_quantize},
      {"distill", "a training text for a smaller model, translated by a larger one", add_distill},
      {"merge", "write a model with its LoRA adapter merged", add_merge},
      {"add-tokens", "add tokens or languages to a model and its vocabulary", add_add_tokens},
      {"prune", "remove the heads, columns and layers needed least, or set weights to zero",
       add_prune},
      {"factorize", "make matrices the product of two smaller ones (low rank)", add_factorize},
      {"info", "what a run directory, checkpoint, model or vocabulary is", add_info},
      {"report", "one HTML page that shows and compares runs", add_report},
      {"plan", "the memory that training takes on a GPU, without training", add_plan},
      {"export", "write a model for transformers, CTranslate2, ONNX Runtime or llama.cpp",
       add_export},
      {"import", "read a model of Hugging Face Transformers", add_import},
      {"completion", "completion for bash, zsh or fish", add_completion},
      {"man", "manual pages", add_man},
  };
  std::vector<std::pair<CLI::App*, Action>> actions;
  for (const Command& command : kCommands) {
    CLI::App* sub = app.add_subcommand(command.name, command.help);
    sub->set_version_flag("-V,--version", version);
    actions.emplace_back(sub, command.add(*sub));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& done) {
    return app.exit(done);  // help and version
  } catch (const CLI::ParseError& error) {
    return fail_with(kUsage, explain(app, error, argc, argv) + " (--help says more)");
  }
  for (const auto& [sub, action] : actions)
    if (sub->parsed()) return run_naming_flags(*sub, action);
  return kUsage;
}

}  // namespace
}  // namespace translate_train

int main(int argc, char** argv) {
  using namespace translate_train;
  trafo::os::prepare_program(argc, argv);
  try {
    return run(argc, argv);
  } catch (const CliError& error) {
    return fail_with(error.exit_code(), error.what());
  } catch (const trafo::Error& error) {
    return fail_with(kFailed, error.message());
  } catch (const std::bad_alloc&) {
    return fail_with(kOutOfMemory, "out of memory");
  } catch (const std::exception& error) {
    return fail_with(kFailed, error.what());
  }
}
