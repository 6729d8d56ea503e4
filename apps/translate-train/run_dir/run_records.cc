#include "run_dir/run_records.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>

#include "engine/os/names.h"
#include "run_dir/run_files.h"
#include "settings/setting_types.h"
#include "text/markdown_text.h"
#include "text/text_io.h"

namespace translate_train {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kSamples = 6;
constexpr size_t kLongestSample = 500;  // bytes: a validation adds a few kilobytes at most

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string shortened(std::string_view text) {
  if (text.size() <= kLongestSample) return std::string(text);
  size_t end = kLongestSample;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "…";
}

Json new_record(const char* type, int64_t update) {
  return {{"type", type}, {"update", update}, {"time", unix_seconds()}};
}

const char* stop_name(int32_t stop) {
  switch (stop) {
    case TRAFO_STOP_LIMIT:
      return "limit";
    case TRAFO_STOP_EARLY:
      return "early stopping";
    case TRAFO_STOP_CANCELLED:
      return "cancelled";
    default:
      return "stopped";
  }
}

// The lines of `path` that `samples` name; empty if the file does not have them all.
std::vector<std::string> lines_at(const std::string& path, const std::vector<SamplePair>& samples) {
  std::vector<std::string> found;
  std::ifstream in(trafo::os::path_of(path), std::ios::binary);
  std::string line;
  for (int64_t number = 0; found.size() < samples.size() && std::getline(in, line); ++number)
    if (samples[found.size()].line == number) found.push_back(shortened(line));
  if (found.size() != samples.size()) found.clear();
  return found;
}

}  // namespace

std::vector<std::pair<const MetricSpec*, double>> values_of(const trafo_event& e) {
  std::vector<std::pair<const MetricSpec*, double>> values;
  for (int64_t i = 0; i < e.metric_count; ++i)
    if (const MetricSpec* const metric = metric_of(e.metrics[i].metric);
        metric != nullptr && !std::isnan(e.metrics[i].value))
      values.emplace_back(metric, e.metrics[i].value);
  std::ranges::sort(values, {},
                    &std::pair<const MetricSpec*, double>::first);  // as they are listed
  return values;
}

std::vector<std::pair<std::string, double>> objective_values_of(const trafo_event& e) {
  std::vector<std::pair<std::string, double>> values;
  for (int64_t i = 0; i < e.objective_metric_count; ++i) {
    const trafo_objective_metric& metric = e.objective_metrics[i];
    values.emplace_back(std::string(metric.name.data, metric.name.length), metric.value);
  }
  return values;
}

std::vector<SamplePair> pick_samples(const Corpus& valid) {
  trafo_corpus_info info{};
  check(trafo_corpus_get_info(valid.get(), &info));
  std::vector<SamplePair> samples;
  if (info.ids) return samples;
  const int64_t count = std::min(kSamples, info.pairs);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t pair = (2 * i + 1) * info.pairs / (2 * count);
    trafo_string_view source{}, target{};
    int64_t line = 0;
    check(trafo_corpus_get_pair(valid.get(), pair, &source, &target));
    check(trafo_corpus_get_line(valid.get(), pair, &line));
    samples.push_back(
        {line, shortened({source.data, source.length}), shortened({target.data, target.length})});
  }
  return samples;
}

RunRecords::RunRecords(RunFacts facts, Reporter& reporter)
    : facts_(std::move(facts)), reporter_(reporter) {}

Json RunRecords::take(const trafo_event& e) {
  if (e.kind != TRAFO_EVENT_SAVED) last_update_ = e.update;  // it may be of an earlier update
  last_seconds_ = e.elapsed_seconds;
  switch (e.kind) {
    case TRAFO_EVENT_STARTED:
      begin(e, false);
      return {};
    case TRAFO_EVENT_RESUMED:
      begin(e, true);
      return {};
    case TRAFO_EVENT_LOG:
      return train(e);
    case TRAFO_EVENT_SKIPPED: {
      Json record = new_record("skipped", e.update);
      record["loss"] = e.loss;
      record["grad_norm"] = e.grad_norm;
      reporter_.metric(record);
      return record;
    }
    case TRAFO_EVENT_VALIDATED:
      return valid(e);
    case TRAFO_EVENT_AVERAGED:
      return averaged(e);
    case TRAFO_EVENT_FINISHED:
    case TRAFO_EVENT_STOPPED:
      return end(e.update, stop_name(e.stop), e.elapsed_seconds);
    default:
      return {};
  }
}

void RunRecords::fail(bool diverged) {
  if (last_update_ < 0) return;
  end(last_update_, diverged ? "diverged" : "failed", last_seconds_);
}

Json RunRecords::end(int64_t update, const char* stop, double seconds) {
  Json record = new_record("end", update);
  record["stop"] = stop;
  record["elapsed_seconds"] = seconds;
  reporter_.metric(record);
  return record;
}

void RunRecords::begin(const trafo_event& e, bool resumed) {
  // Removes the records that an earlier process wrote after the checkpoint, because they come
  // again. Without a checkpoint these are all records.
  reporter_.rewind_metrics(resumed ? e.update : -1);
  Json run = new_record("run", e.update);
  run["resumed"] = resumed;
  run.update(facts_.description);
  reporter_.metric(run);
  if (!facts_.samples.empty()) {
    Json samples = new_record("samples", e.update);
    for (const char* key : {"lines", "sources", "references"}) samples[key] = Json::array();
    for (const SamplePair& sample : facts_.samples) {
      samples["lines"].push_back(sample.line);
      samples["sources"].push_back(sample.source);
      samples["references"].push_back(sample.reference);
    }
    reporter_.metric(samples);
  }
  if (!facts_.tensorboard.empty()) {
    if (facts_.tensorboard_is_own) make_own_folder(facts_.tensorboard);
    board_ = std::make_unique<TensorBoardWriter>(facts_.tensorboard, unix_seconds());
    board_->start_session(resumed ? e.update + 1 : 0, unix_seconds());
  }
}

Json RunRecords::train(const trafo_event& e) {
  Json record = new_record("train", e.update);
  record.update({{"epoch", e.epoch},
                 {"epoch_fraction", e.epoch_fraction},
                 {"loss", e.loss},
                 {"nll", e.nll},
                 {"grad_norm", e.grad_norm},
                 {"learning_rate", e.learning_rate},
                 {"target_tokens", e.target_tokens},
                 {"source_tokens", e.source_tokens},
                 {"target_tokens_per_second", e.target_tokens_per_second},
                 {"source_tokens_per_second", e.source_tokens_per_second},
                 {"elapsed_seconds", e.elapsed_seconds},
                 {"memory_bytes", e.memory_bytes},
                 {"peak_memory_bytes", e.peak_memory_bytes},
                 {"skipped_updates", e.skipped_updates}});
  if (e.eta_seconds >= 0) record["eta_seconds"] = e.eta_seconds;
  const auto objective = objective_values_of(e);
  for (const auto& [name, value] : objective) record["objective"][name] = value;
  reporter_.metric(record);
  if (board_) {
    std::vector<Scalar> scalars = {
        {"train/loss", e.loss},
        {"train/perplexity", std::exp(e.nll)},
        {"train/grad_norm", e.grad_norm},
        {"train/learning_rate", e.learning_rate},
        {"train/epoch", static_cast<double>(e.epoch - 1) + e.epoch_fraction},
        {"speed/target_tokens_per_second", e.target_tokens_per_second},
        {"speed/source_tokens_per_second", e.source_tokens_per_second},
        {"memory/in_use_gb", static_cast<double>(e.memory_bytes) / 1e9},
        {"memory/peak_gb", static_cast<double>(e.peak_memory_bytes) / 1e9}};
    for (const auto& [name, value] : objective) scalars.push_back({"train/" + name, value});
    board_->scalars(e.update, record["time"], scalars);
    check_board();
  }
  return record;
}

Json RunRecords::valid(const trafo_event& e) {
  Json record = new_record("valid", e.update);
  record["epoch"] = e.epoch;
  record["target_tokens"] = e.target_tokens;
  record["elapsed_seconds"] = e.elapsed_seconds;
  std::vector<Scalar> scalars;
  for (const auto& [metric, value] : values_of(e)) {
    record[metric->name] = value;
    scalars.push_back({std::string("valid/") + metric->name, value});
  }
  const MetricSpec* const deciding = metric_of(e.deciding_metric);
  record["deciding_metric"] = deciding != nullptr ? deciding->name : "";
  if (e.message.length > 0) record["start"] = true;  // the model that the run starts from
  record["improved"] = e.improved != 0;
  record["stalled"] = e.stalled;
  std::vector<std::string> translations;
  if (e.path.length > 0) {
    const std::string path(e.path.data, e.path.length);
    record["hypotheses"] = path;
    translations = lines_at(path, facts_.samples);
    if (!translations.empty()) record["samples"] = translations;
  }
  reporter_.metric(record);
  if (board_) {
    board_->scalars(e.update, record["time"], scalars);
    if (!translations.empty()) board_samples(e.update, translations);
    check_board();
  }
  return record;
}

Json RunRecords::averaged(const trafo_event& e) {
  Json record = new_record("average", e.update);
  record["updates"] = std::string(e.message.data, e.message.length);
  record["model"] = std::string(e.path.data, e.path.length);
  for (const auto& [metric, value] : values_of(e)) record[metric->name] = value;
  reporter_.metric(record);
  return record;
}

void RunRecords::board_samples(int64_t update, const std::vector<std::string>& translations) {
  std::string table = "| source | reference | translation |\n| --- | --- | --- |\n";
  for (size_t i = 0; i < translations.size(); ++i)
    table +=
        fmt::format("| {} | {} | {} |\n", markdown_text(facts_.samples[i].source),
                    markdown_text(facts_.samples[i].reference), markdown_text(translations[i]));
  board_->text(update, unix_seconds(), "valid/samples", table);
}

// A full disk must not end a run that could still be saved elsewhere: said once, then ignored.
void RunRecords::check_board() {
  if (!board_->failed()) return;
  reporter_.warn(board_->path() + ": cannot be written, nothing more goes to TensorBoard");
  board_.reset();
}

}  // namespace translate_train
