// Manual pages, made from the options as they are parsed. See man-pages(7), groff_man(7).
#include <fmt/format.h>

#include "commands/cli_error.h"
#include "commands/command_flags.h"
#include "commands/commands.h"
#include "engine/io/atomic_file.h"
#include "engine/os/names.h"
#include "run_dir/run_files.h"
#include "text/text_io.h"

namespace translate_train {
namespace {

constexpr const char* kProgram = "translate-train";

// Text as roff reads it: a backslash and a dash stand for themselves, and no line is a request.
std::string roff(const std::string& text) {
  std::string out;
  bool line_begins = true;
  for (const char c : text) {
    if (line_begins && (c == '.' || c == '\'')) out += "\\&";
    line_begins = c == '\n';
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
  }
  return out;
}

std::string bold(const std::string& text) {
  return "\\fB" + roff(text) + "\\fR";
}

std::string begin(const std::string& name, const std::string& what) {
  return fmt::format(".TH {} 1 \"\" \"trafo {}\" \"Trafo\"\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n",
                     name, trafo_version(), name, roff(what));
}

std::string page_of_program(const CLI::App& app) {
  std::string page =
      begin(kProgram, "trains transformers that translate, and translates with them");
  page += bold(kProgram) + " \\fICOMMAND\\fR [\\fIOPTIONS\\fR]\n.SH COMMANDS\n";
  for (const CLI::App* command : commands_of(app))
    page +=
        fmt::format(".TP\n{}(1)\n{}\n", bold(fmt::format("{}-{}", kProgram, command->get_name())),
                    roff(command->get_description()));
  page += fmt::format(
      ".SH EXIT STATUS\n.TP\n0\ndone\n.TP\n1\na file or a device failed\n.TP\n2\nwrong usage or "
      "input\n"
      ".TP\n3\ntraining diverged\n.TP\n4\nout of memory\n.TP\n129, 130, 138, 140, "
      "143\nended by SIGHUP, SIGINT, SIGUSR1, SIGUSR2 or SIGTERM; "
      "{} saves first\n",
      bold("train"));
  return page;
}

std::string page_of_command(const CLI::App& command) {
  const std::string name = fmt::format("{}-{}", kProgram, command.get_name());
  std::string page = begin(name, command.get_description());
  page += bold(fmt::format("{} {}", kProgram, command.get_name())) + " [\\fIOPTIONS\\fR]";
  std::vector<Flag> flags = arguments_of(command);
  for (const Flag& argument : flags) page += fmt::format(" \\fI{}\\fR", roff(argument.names[0]));
  page += "\n";
  for (const Flag& flag : flags_of(command)) flags.push_back(flag);
  std::string group;
  for (const Flag& flag : flags) {
    if (flag.group != group) {
      group = flag.group;
      page += fmt::format(".SH \"{}\"\n", roff(group));
    }
    std::vector<std::string> names;
    for (const std::string& each : flag.names) names.push_back(bold(each));
    page += fmt::format(".TP\n{}{}\n{}\n", joined(names, ", "),
                        flag.value.empty() ? "" : fmt::format(" \\fI{}\\fR", roff(flag.value)),
                        roff(flag.help));
  }
  if (!command.get_footer().empty())
    page += fmt::format(".SH NOTES\n.nf\n{}\n.fi\n", roff(command.get_footer()));
  page += fmt::format(".SH SEE ALSO\n{}(1)\n", bold(kProgram));
  return page;
}

void print_page(std::string page) {
  page.pop_back();  // the writer ends the line
  LineWriter out("-");
  out.write(page);
  out.finish();
}

// Every page, as DIRECTORY/NAME.1.
void write_pages(const CLI::App& program, const std::string& directory) {
  trafo::MadeDirectory output(trafo::os::path_of(directory));
  write_file(output.file(fmt::format("{}.1", kProgram)).string(), page_of_program(program));
  for (const CLI::App* command : commands_of(program))
    write_file(output.file(fmt::format("{}-{}.1", kProgram, command->get_name())).string(),
               page_of_command(*command));
  output.keep();
}

}  // namespace

Action add_man(CLI::App& app) {
  struct Arguments {
    std::string command, directory;
  };
  auto arguments = std::make_shared<Arguments>();
  std::vector<std::string> names;  // the program adds this command last
  for (const CLI::App* each : commands_of(*app.get_parent())) names.push_back(each->get_name());
  CLI::Option* command =
      app.add_option("COMMAND", arguments->command, "(default: the page of the program)")
          ->type_name(":{" + joined(names, ",") + "}");
  app.add_option("--all", arguments->directory, "write every page into this directory instead")
      ->type_name("DIR")
      ->excludes(command);
  app.footer("To read one: translate-train man train | man -l -");
  return [&app, arguments] {
    const CLI::App& program = *app.get_parent();
    if (!arguments->directory.empty()) {
      write_pages(program, arguments->directory);
      return static_cast<int>(kDone);
    }
    if (arguments->command.empty()) {
      print_page(page_of_program(program));
      return static_cast<int>(kDone);
    }
    for (const CLI::App* each : commands_of(program)) {
      if (each->get_name() != arguments->command) continue;
      print_page(page_of_command(*each));
      return static_cast<int>(kDone);
    }
    usage_error("unknown command " + arguments->command);
  };
}

}  // namespace translate_train
