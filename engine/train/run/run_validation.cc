// TrainingRun: validation, the best model, averaging.
#include <algorithm>
#include <cmath>

#include "engine/metrics/registry.h"
#include "engine/models/model_io.h"
#include "engine/train/run/run.h"
#include "engine/train/step/prune_schedule.h"

namespace trafo {
namespace {

bool beats(const std::string& name, double value, const std::optional<BestMetric>& best) {
  return is_better(metric_named(name, "validation"), value,
                   best ? std::optional(best->value) : std::nullopt);
}

}  // namespace

// A model that others have trained, or an earlier phase, is measured before its first update.
bool TrainingRun::start_is_due() const {
  const int64_t update = state_.trainer.update;
  const bool begins = options_.phase > 1
                          ? update == state_.phase_update
                          : !resumed_ && update == 0 && !model_.origin().file.empty();
  return data_.valid && begins && state_.start.empty();
}

// Scheduled validations, by valid_freq, count for early stopping. The validation at the end of a
// run does not count. Otherwise a run whose limit is raised later would stop earlier than one that
// had the higher limit from the start.
bool TrainingRun::run_validation(Session& session, ValidationKind kind) {
  if (session.cancelled()) return false;
  emit(session, make_event(TrainEventKind::validating));
  const auto result = validate(session.cancel);
  if (!result) return false;
  TrainEvent event = make_event(TrainEventKind::validated);
  write_hypotheses(*result, event);
  state_.validation_due = false;
  state_.validated_update = state_.trainer.update;
  changed_ = true;
  event.metrics = take_metrics(result->values, kind);
  if (kind == ValidationKind::start) event.message = "before the first update";
  event.stalled = state_.stalled;
  update_clock();
  event.elapsed_seconds = state_.train_seconds;
  for (const MetricValue& metric : event.metrics)
    save_due_ = save_due_ || (run_directory_ && options_.keep_best && metric.improved);
  emit(session, event);
  return true;
}

std::optional<ValidationResult> TrainingRun::validate(const CancelToken* cancel) {
  gemm_tuning_.acquire();
  if (group_.has_peers()) return validate_together();
  const EmaWeights weights(trainer_);
  return validate_model(context_, model_, data_, options_, cancel, step_graphs());
}

// Graphs keep memory between validations, and the GEMM kernels that they were captured with.
StepGraphs* TrainingRun::step_graphs() {
  if (options_.memory_limit > 0 || options_.batch_fit || gemm_tuning_.open() ||
      !StepGraphs::usable(context_, model_))
    return nullptr;
  if (!step_graphs_) step_graphs_ = std::make_unique<StepGraphs>(context_, model_);
  return step_graphs_.get();
}

std::vector<MetricValue> TrainingRun::take_metrics(const std::vector<double>& values,
                                                   ValidationKind kind) {
  // Denser models do not compete with those that the run is for. Neither does the model that it
  // starts from.
  const bool counts =
      kind != ValidationKind::start && !prunes_after(options_, state_.trainer.update);
  const bool scheduled = kind == ValidationKind::scheduled;
  std::vector<MetricValue> metrics;
  for (size_t i = 0; i < values.size(); ++i) {
    auto& [name, best] = state_.best[i];
    const auto& judges = deciding_.names;
    const bool improved = counts && std::find(judges.begin(), judges.end(), name) != judges.end() &&
                          state_.trainer.far_off_in_a_row == 0 && beats(name, values[i], best);
    if (kind == ValidationKind::start && std::isfinite(values[i]))
      state_.start.emplace_back(name, values[i]);
    if (improved) best = BestMetric{values[i], state_.trainer.update};
    int64_t& stalled = state_.stalled_by_metric[name];
    stalled = improved ? 0 : stalled + (scheduled && counts ? 1 : 0);
    metrics.push_back({name, values[i], best ? best->value : values[i], best ? best->update : 0,
                       improved, decides(name)});
  }
  state_.stalled = stalled();
  return metrics;
}

int64_t TrainingRun::stalled() const {
  const auto of = [&](const std::string& metric) {
    const auto found = state_.stalled_by_metric.find(metric);
    return found == state_.stalled_by_metric.end() ? 0 : found->second;
  };
  int64_t count = of(deciding_.names.front());
  if (options_.early_stopping_on == StoppingMetrics::first) return count;
  for (const std::string& metric : deciding_.names)
    count = options_.early_stopping_on == StoppingMetrics::any ? std::max(count, of(metric))
                                                               : std::min(count, of(metric));
  return count;
}

// At the end of a run: training should have made the model better.
void TrainingRun::warn_if_worse_than_start(Session& session) {
  const auto of = [&](const auto& entry) { return decides(entry.first); };
  const auto start = std::ranges::find_if(state_.start, of);
  const auto found = std::ranges::find_if(state_.best, of);
  if (start == state_.start.end() || found == state_.best.end()) return;
  const auto& [name, best] = *found;
  if (best && is_better(metric_named(name, "validation"), best->value, start->second)) return;
  TrainEvent event = make_event(TrainEventKind::warning);
  event.message = concat("training has not made the model better: ", name, " was ", start->second,
                         " before the first update, ");
  event.message += best
                       ? concat("and the best since is ", best->value, ", at update ", best->update)
                       : std::string("and no later model was measured as a candidate");
  emit(session, event);
}

std::optional<ValidationResult> TrainingRun::validate_file(const std::filesystem::path& weights,
                                                           const CancelToken* cancel) {
  ParameterStore& parameters = model_.parameters();
  const Tensor master = parameters.master().detach();
  std::vector<std::byte> own(master.bytes());
  context_.to_host(master, own.data(), own.size());
  const auto put_back = [&] {
    context_.backend().copy_from_host(master.raw(), own.data(), own.size());
    parameters.follow_master(context_);
    context_.backend().synchronize();
  };
  std::optional<ValidationResult> result;
  try {
    load_weights(context_, SafetensorsReader::open(weights), model_);
    result = validate_model(context_, model_, data_, options_, cancel);
  } catch (...) {
    put_back();
    throw;
  }
  put_back();
  return result;
}

// Averages the newest checkpoints at the end of a run.
void TrainingRun::average(Session& session) {
  if (averaged_update_ == state_.trainer.update) return;
  if (!group_.has_peers()) return average_files(session);
  agree_after(*group_.communicator, [&] {
    if (group_.rank == 0) average_files(session);
  });
  averaged_update_ = state_.trainer.update;
}

void TrainingRun::average_files(Session& session) {
  const RunDirectory::Average average = directory_->average(options_.average_last);
  averaged_update_ = state_.trainer.update;
  TrainEvent event = make_event(TrainEventKind::averaged);
  event.path = average.path.string();
  for (const int64_t update : average.updates)
    event.message += concat(event.message.empty() ? "" : ", ", update);
  if (data_.valid) emit(session, make_event(TrainEventKind::validating));
  const auto result = data_.valid ? validate_file(average.path, session.cancel) : std::nullopt;
  for (size_t i = 0; result && i < result->values.size(); ++i) {
    const auto& [name, best] = state_.best[i];
    const double value = result->values[i];
    event.metrics.push_back({name, value, best ? best->value : value, best ? best->update : 0,
                             beats(name, value, best), decides(name)});
  }
  update_clock();
  emit(session, event);
}

}  // namespace trafo
