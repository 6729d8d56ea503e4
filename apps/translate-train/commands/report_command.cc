#include <fmt/format.h>

#include <chrono>
#include <fstream>
#include <map>

#include "commands/commands.h"
#include "commands/training.h"
#include "report/report_page.h"
#include "run_dir/run_files.h"
#include "text/text_io.h"

namespace translate_train {
namespace {

struct ReportArguments {
  std::vector<std::string> runs;
  std::string output = "report.html";
  bool output_given = false, quiet = false;
};

// Runs of one name are told apart by their paths.
void tell_apart(std::vector<RunLog>& runs, const std::vector<std::string>& paths) {
  std::map<std::string, int> uses;
  for (const RunLog& run : runs) ++uses[run.name];
  for (size_t r = 0; r < runs.size(); ++r)
    if (uses[runs[r].name] > 1) runs[r].name = paths[r];
}

// Or nothing that could be lost.
bool is_report(const std::string& path) {
  std::ifstream in = open_run_file(path);
  std::string begin(report_begin().size(), '\0');
  in.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  return in.gcount() == 0 || begin == report_begin();
}

int report(const ReportArguments& arguments) {
  if (arguments.runs.size() > kMostRuns)
    usage_error(fmt::format("{} runs: at most {} can be told apart in one report",
                            arguments.runs.size(), kMostRuns));
  Reporter reporter({.quiet = arguments.quiet});
  std::vector<RunLog> runs;
  {
    const Reporter::Phase phase(reporter, "reading the runs");
    for (const std::string& path : arguments.runs) {
      std::vector<std::string> warnings;
      runs.push_back(read_run(path, warnings));
      for (const std::string& warning : warnings) reporter.warn(warning);
    }
  }
  tell_apart(runs, arguments.runs);
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  const std::string page = report_page(runs, now);
  if (arguments.output == "-") {
    LineWriter out("-");
    out.write(page);
    out.finish();
    return kDone;
  }
  if (!arguments.output_given && !is_report(arguments.output))
    usage_error(arguments.output + ": exists and is no report: give --output FILE");
  write_file(arguments.output, page);
  reporter.info(fmt::format("{}: {} run{}, open it in a browser", arguments.output, runs.size(),
                            runs.size() == 1 ? "" : "s"));
  return kDone;
}

}  // namespace

Action add_report(CLI::App& app) {
  auto arguments = std::make_shared<ReportArguments>();
  app.add_option("runs", arguments->runs, "run directories, finished or still going")
      ->required()
      ->type_name("RUN");
  const CLI::Option* output = app.add_option("-o,--output", arguments->output,
                                             "(default report.html; - for standard output)")
                                  ->type_name("FILE.html");
  app.add_flag("-q,--quiet", arguments->quiet, "errors and warnings only");
  app.footer(
      "The page holds everything it shows and needs no network: loss, BLEU, chrF, learning rate, "
      "gradient\nnorm, speed and memory as curves, sample translations over time, and the "
      "configuration. Several runs\nare laid over each other.");
  return [arguments, output] {
    arguments->output_given = output->count() > 0;
    return report(*arguments);
  };
}

}  // namespace translate_train
