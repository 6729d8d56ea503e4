#include "report/report_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "commands/cli_error.h"
#include "engine/os/file.h"
#include "engine/os/names.h"
#include "run_dir/run_files.h"
#include "settings/setting_types.h"
#include "settings/yaml_file.h"

namespace translate_train {
namespace {

namespace fs = std::filesystem;
using ReportJson = nlohmann::json;

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
// Beyond these a number is not one that training wrote, and would ruin every scale.
constexpr double kLargest = 1e18;
constexpr size_t kMostObjectiveMetrics = 16;
constexpr int64_t kLastUpdate = int64_t{1} << 50;

double number(const ReportJson& record, const char* key) {
  const auto found = record.find(key);
  if (found == record.end() || !found->is_number()) return kUnknown;
  const double value = found->get<double>();
  return std::abs(value) < kLargest ? value : kUnknown;
}

int64_t count(const ReportJson& record, const char* key) {
  const double value = number(record, key);
  return value >= 0 ? static_cast<int64_t>(value) : 0;
}

// Other names are of a file that training has not written: they would become parts of the page.
bool is_metric_name(const std::string& name) {
  return !name.empty() && name.size() <= 40 && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
}

std::string text(const ReportJson& record, const char* key) {
  const auto found = record.find(key);
  return found != record.end() && found->is_string() ? found->get<std::string>() : "";
}

std::vector<std::string> texts(const ReportJson& record, const char* key) {
  std::vector<std::string> values;
  const auto found = record.find(key);
  if (found == record.end() || !found->is_array()) return values;
  for (const ReportJson& value : *found) values.push_back(value.is_string() ? value : "");
  return values;
}

// A run that went on after a kill repeats updates; the last time counts.
template <typename Point>
void add_point(std::vector<Point>& points, Point point) {
  while (!points.empty() && points.back().update >= point.update) points.pop_back();
  points.push_back(std::move(point));
}

class LogReader {
 public:
  explicit LogReader(RunLog& log) : log_(log) {}

  // False if it is no record.
  bool take(const ReportJson& record) {
    const double update = record.is_object() ? number(record, "update") : kUnknown;
    if (!(update >= 0 && update <= static_cast<double>(kLastUpdate))) return false;
    update_ = static_cast<int64_t>(update);
    const std::string type = text(record, "type");
    if (type == "train")
      train(record);
    else if (type == "valid")
      valid(record);
    else if (type == "run")
      run(record);
    else if (type == "samples")
      log_.sample_sets.push_back({texts(record, "sources"), texts(record, "references")});
    log_.stop = type == "end" ? text(record, "stop") : "";
    log_.last_update = update_;
    if (const double time = number(record, "time"); time > 0) log_.last_time = time;
    return true;
  }

 private:
  void train(const ReportJson& record) {
    TrainPoint point{};
    point.update = update_;
    point.tokens = number(record, "target_tokens");
    point.seconds = number(record, "elapsed_seconds");
    point.loss = number(record, "loss");
    point.nll = record.contains("nll") ? number(record, "nll") : point.loss;
    point.grad_norm = number(record, "grad_norm");
    point.learning_rate = number(record, "learning_rate");
    point.speed = number(record, "target_tokens_per_second");
    point.memory = number(record, "memory_bytes");
    point.peak_memory = number(record, "peak_memory_bytes");
    if (const auto found = record.find("objective"); found != record.end() && found->is_object())
      for (const auto& [name, value] : found->items())
        if (is_metric_name(name) && point.objective.size() < kMostObjectiveMetrics)
          point.objective[name] = number(*found, name.c_str());
    add_point(log_.train, std::move(point));
    log_.epoch = count(record, "epoch");
    log_.skipped = count(record, "skipped_updates");
    const double eta = number(record, "eta_seconds");
    log_.eta_seconds = std::isnan(eta) ? -1 : eta;
  }

  void valid(const ReportJson& record) {
    ValidPoint point{};
    point.update = update_;
    point.tokens = number(record, "target_tokens");
    point.seconds = number(record, "elapsed_seconds");
    // Older logs have no tokens here, but a display shortly before.
    if (std::isnan(point.tokens) && !log_.train.empty()) point.tokens = log_.train.back().tokens;
    for (const MetricSpec& metric : metric_specs())
      point.metrics.push_back(number(record, metric.name));
    const auto improved = record.find("improved");
    point.has_verdict = improved != record.end() && improved->is_boolean();
    point.improved = point.has_verdict && improved->get<bool>();
    if (!log_.sample_sets.empty()) {
      point.sample_set = log_.sample_sets.size() - 1;
      point.translations = texts(record, "samples");
      const SampleSet& set = log_.sample_sets.back();
      if (point.translations.size() != set.sources.size() ||
          set.sources.size() != set.references.size())
        point.translations.clear();
    }
    add_point(log_.valid, std::move(point));
  }

  void run(const ReportJson& record) {
    log_.version = text(record, "version");
    log_.device = text(record, "device");
    log_.parameters = count(record, "parameters");
    log_.train_pairs = count(record, "train_pairs");
    log_.valid_pairs = count(record, "valid_pairs");
    auto& resumed = log_.resumed_after;
    while (!resumed.empty() && resumed.back() >= update_) resumed.pop_back();
    if (update_ > 0) resumed.push_back(update_);
  }

  RunLog& log_;
  int64_t update_ = 0;
};

// Settings are texts and lists of texts. Deeper lists are left out: they may be endless, because an
// alias can name the list that contains it.
std::string scalar_text(const YAML::Node& node) {
  if (node.IsScalar()) return node.Scalar();
  std::string all;
  if (node.IsSequence())
    for (const auto& item : node)
      if (item.IsScalar()) all += (all.empty() ? "" : ", ") + item.Scalar();
  return all;
}

// Unlike `train`, which must know every key, this shows whatever is there.
void read_settings(const std::string& path, RunLog& log, std::vector<std::string>& warnings) {
  try {
    const YAML::Node root = load_yaml(path);
    if (!root.IsMap()) throw YAML::Exception(YAML::Mark::null_mark(), "no settings in it");
    for (const auto& entry : root)
      log.settings.emplace_back(scalar_text(entry.first), scalar_text(entry.second));
  } catch (const YAML::Exception& error) {
    warnings.push_back(path + ": " + error.what() + "; the configuration is left out");
  }
}

}  // namespace

int RunLog::best_validation() const {
  const auto count = static_cast<int>(valid.size());
  const auto at = [&](int i) -> const ValidPoint& { return valid[static_cast<size_t>(i)]; };
  if (std::ranges::any_of(valid, &ValidPoint::has_verdict)) {
    for (int i = count - 1; i >= 0; --i)
      if (at(i).improved) return i;
    return -1;
  }
  for (size_t m = 0; m < metric_specs().size(); ++m) {
    int best = -1;
    for (int i = 0; i < count; ++i) {
      const double value = at(i).metrics[m];
      if (std::isnan(value)) continue;
      if (best < 0 || metric_specs()[m].is_better(value, at(best).metrics[m])) best = i;
    }
    if (best >= 0) return best;
  }
  return -1;
}

RunLog read_run(const std::string& path, std::vector<std::string>& warnings) {
  const std::string metrics = path + "/metrics.jsonl";
  trafo::os::FileStatus status;
  if (trafo::os::status_of(path, status) != 0)
    usage_error(path + ": there is no such run directory");
  if (status.kind != trafo::os::FileStatus::Kind::directory)
    usage_error(path + ": is no run directory but a file");
  if (trafo::os::status_of(metrics, status) != 0)
    usage_error(path + ": is no run directory, it has no metrics.jsonl");
  check_run_files(path);
  std::ifstream in = open_run_file(metrics);
  if (!in) throw CliError(kFailed, metrics + ": cannot be read");

  RunLog log;
  fs::path name = trafo::os::path_of(path).lexically_normal();
  if (!name.has_filename()) name = name.parent_path();
  log.name = name == "." ? fs::absolute(trafo::os::path_of(path))
                               .lexically_normal()
                               .parent_path()
                               .filename()
                               .string()
                         : name.filename().string();
  LogReader reader(log);
  std::string line;
  int64_t number_of_lines = 0, first_bad = 0, bad = 0;
  while (std::getline(in, line)) {
    ++number_of_lines;
    // The last line may be half written by a run that is still going.
    if (!reader.take(ReportJson::parse(line, nullptr, false)) && !in.eof()) {
      if (bad++ == 0) first_bad = number_of_lines;
    }
  }
  if (in.bad()) throw CliError(kFailed, metrics + ": cannot be read");
  if (bad > 0)
    warnings.push_back(
        fmt::format("{}:{} is no record, and {} more; left out", metrics, first_bad, bad - 1));
  if (log.last_time == 0) log.last_time = static_cast<double>(status.modified_seconds);
  if (fs::exists(trafo::os::path_of(path + "/config.yml")))
    read_settings(path + "/config.yml", log, warnings);
  else
    warnings.push_back(path + "/config.yml is missing; the configuration is left out");
  return log;
}

}  // namespace translate_train
