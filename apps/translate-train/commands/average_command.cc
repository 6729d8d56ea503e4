#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "commands/commands.h"
#include "engine/io/atomic_file.h"
#include "engine/os/names.h"
#include "run_dir/run_files.h"
#include "settings/setting_types.h"

namespace translate_train {
namespace {

namespace fs = std::filesystem;

struct AverageArguments {
  std::string run = "run";
  int64_t last = 0, best = 0;
  std::string metric;
  std::vector<std::string> models;
  std::string output;
  bool quiet = false;
};

// The validations in RUN/metrics.jsonl.
std::vector<nlohmann::json> validations(const std::string& run) {
  std::vector<nlohmann::json> records;
  std::ifstream in = open_run_file(run + "/metrics.jsonl");
  for (std::string line; std::getline(in, line);) {
    auto record = nlohmann::json::parse(line, nullptr, false);
    if (!record.is_object()) continue;
    const auto type = record.find("type");
    if (type != record.end() && *type == "valid") records.push_back(std::move(record));
  }
  return records;
}

// The metric by which the newest validation chose the best model. Logs of earlier versions do not
// name it: the first that was measured.
const MetricSpec& deciding_metric(const std::vector<nlohmann::json>& records) {
  for (auto record = records.rbegin(); record != records.rend(); ++record) {
    const auto name = record->find("deciding_metric");
    if (name == record->end() || !name->is_string()) continue;
    if (const MetricSpec* const metric = metric_named(name->get<std::string>())) return *metric;
  }
  for (const MetricSpec& metric : metric_specs())
    if (std::ranges::any_of(records, [&](const auto& r) { return r.contains(metric.name); }))
      return metric;
  return metric_specs().front();
}

// Update -> value of a metric; of an update that was measured twice, the last.
std::map<int64_t, double> measured(const std::vector<nlohmann::json>& records,
                                   const std::string& metric) {
  std::map<int64_t, double> values;
  for (const auto& record : records) {
    const auto value = record.find(metric), update = record.find("update");
    if (value == record.end() || update == record.end()) continue;
    if (!value->is_number() || !update->is_number_integer()) continue;
    if (std::isfinite(value->get<double>())) values[update->get<int64_t>()] = value->get<double>();
  }
  return values;
}

std::vector<std::string> all_metrics() {
  std::vector<std::string> names;
  for (const MetricSpec& metric : metric_specs()) names.emplace_back(metric.name);
  return names;
}

std::vector<int64_t> best_of(const AverageArguments& arguments, std::vector<int64_t> updates) {
  const auto records = validations(arguments.run);
  const MetricSpec& metric =
      arguments.metric.empty() ? deciding_metric(records) : *metric_named(arguments.metric);
  const auto values = measured(records, metric.name);
  std::erase_if(updates, [&](int64_t update) { return !values.contains(update); });
  if (updates.empty())
    usage_error(fmt::format("--best: {} has no checkpoint whose {} was measured", arguments.run,
                            metric.name));
  std::stable_sort(updates.begin(), updates.end(), [&](int64_t a, int64_t b) {
    return metric.is_better(values.at(a), values.at(b));
  });
  updates.resize(std::min(updates.size(), static_cast<size_t>(arguments.best)));
  std::sort(updates.begin(), updates.end());
  return updates;
}

int average(AverageArguments arguments) {
  Reporter reporter({.quiet = arguments.quiet});
  std::vector<std::string> models;
  std::string names;
  std::optional<trafo::MadeDirectory> averaged;
  if (arguments.last < 0 || arguments.best < 0)
    usage_error("--last and --best want the number of checkpoints");
  if ((arguments.last > 0) + (arguments.best > 0) + !arguments.models.empty() > 1)
    usage_error("--last, --best and MODEL: give one of them");
  if (!arguments.metric.empty() && arguments.best == 0) usage_error("--metric belongs to --best");
  refuse_loss(arguments.models, arguments.output);
  if (!arguments.models.empty()) {
    if (arguments.output.empty()) usage_error("--output: where the mean of the models goes");
    for (const std::string& given : arguments.models) models.push_back(usual_model(given));
  } else {
    if (!fs::is_directory(trafo::os::path_of(arguments.run)))
      usage_error(arguments.run + ": no such run directory");
    std::vector<int64_t> updates = checkpoints_of(arguments.run);
    if (updates.empty()) usage_error(arguments.run + ": has no checkpoint");
    if (arguments.best > 0) {
      updates = best_of(arguments, updates);
    } else {
      const auto wanted = static_cast<size_t>(arguments.last > 0 ? arguments.last : 5);
      if (updates.size() > wanted)
        updates.erase(updates.begin(), updates.end() - static_cast<std::ptrdiff_t>(wanted));
    }
    const int64_t wanted = std::max(arguments.last, arguments.best);
    if (static_cast<int64_t>(updates.size()) < wanted)
      reporter.warn(fmt::format("{} has {} such checkpoints, not {} (train --keep-last keeps more)",
                                arguments.run, updates.size(), wanted));
    for (const int64_t update : updates)
      models.push_back(checkpoint_model(arguments.run, std::to_string(update)));
    names = fmt::format(" ({})", fmt::join(updates, ", "));
    if (arguments.output.empty()) {
      const fs::path folder = trafo::os::path_of(arguments.run) / "ckpt" / "averaged";
      make_own_folder(folder.parent_path().string());
      averaged.emplace(folder);
      make_own_folder(folder.string());
      arguments.output = averaged->file(kModelFile).string();
    }
  }
  std::vector<trafo_string_view> paths;
  for (const std::string& model : models) paths.push_back({model.data(), model.size()});
  const Reporter::Phase phase(reporter, "averaging");
  check(trafo_average_models(paths.data(), paths.size(), arguments.output.data(),
                             arguments.output.size()));
  if (averaged) averaged->keep();
  reporter.info(fmt::format("{}: the mean of {} models{} in {:.1f} s", arguments.output,
                            models.size(), names, phase.seconds()));
  return kDone;
}

}  // namespace

Action add_average(CLI::App& app) {
  auto arguments = std::make_shared<AverageArguments>();
  app.add_option("-m,--model,--save-dir", arguments->run, "run directory (default run)")
      ->type_name("DIR");
  app.add_option("--last,--num-update-checkpoints", arguments->last,
                 "its newest checkpoints (default 5)")
      ->type_name("N");
  app.add_option("--best", arguments->best, "instead: its best ones, as metrics.jsonl has them")
      ->type_name("N");
  app.add_option(
         "--metric", arguments->metric,
         "of --best: one of " + known_metrics() + " (default: the one that decided in the run)")
      ->check(CLI::IsMember(all_metrics()))
      ->type_name("NAME");
  app.add_option("MODEL,--inputs", arguments->models,
                 "instead: these files, checkpoints or run directories");
  app.add_option("-o,--output", arguments->output,
                 "(default DIR/ckpt/averaged/model.safetensors, which --checkpoint averaged names)")
      ->type_name("FILE");
  app.add_flag("-q,--quiet", arguments->quiet, "errors and warnings only");
  app.footer(
      "The mean of the weights, added up in double precision. Of a run with "
      "--exponential-smoothing\nit is that of the smoothed ones. Names after a comma are "
      "fairseq's.");
  return [arguments] { return average(*arguments); };
}

}  // namespace translate_train
