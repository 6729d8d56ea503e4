#include "engine/train/run/validator.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/decode/packing.h"
#include "engine/metrics/registry.h"
#include "engine/models/model_io.h"
#include "engine/train/parallel/run_group.h"
#include "engine/train/step/prune_schedule.h"

namespace trafo {
namespace {

bool beats(const std::string& name, double value, const std::optional<BestMetric>& best) {
  return is_better(metric_named(name, "validation"), value,
                   best ? std::optional(best->value) : std::nullopt);
}

}  // namespace

Validator::Validator(const RunParts& parts, RunEvents& events, Checkpointer& checkpoints)
    : run_(parts),
      events_(events),
      checkpoints_(checkpoints),
      deciding_(deciding_metrics(parts.data, parts.options)) {}

void Validator::order_metrics(RunState& state) const {
  const auto saved = std::move(state.best);
  state.best.clear();
  const auto find = [](auto& list, const std::string& name) {
    return std::find_if(list.begin(), list.end(),
                        [&](const auto& each) { return each.first == name; });
  };
  for (const std::string& name : run_.options.valid_metrics) {
    const auto found = find(saved, name);
    state.best.emplace_back(name, found == saved.end() ? std::nullopt : found->second);
  }
  for (const auto& entry : saved)
    if (find(state.best, entry.first) == state.best.end()) state.best.push_back(entry);
}

void Validator::begin_counting() {
  run_.state.stalled = stalled();
  const std::string& validation = checkpoints_.identity().validation;
  if (!validation.empty()) run_.state.validation = validation;
}

bool Validator::start_is_due() const {
  const RunState& state = run_.state;
  const int64_t update = state.trainer.update;
  const bool begins = run_.options.phase > 1 ? update == state.phase_update
                                             : !checkpoints_.resumed() && update == 0 &&
                                                   !run_.model.origin().file.empty();
  return run_.data.valid && begins && state.start.empty();
}

bool Validator::run(RunSession& session, ValidationKind kind) {
  if (session.cancelled()) return false;
  RunState& state = run_.state;
  events_.emit(session, events_.make(TrainEventKind::validating));
  const auto result = measure(session.cancel());
  if (!result) return false;
  TrainEvent event = events_.make(TrainEventKind::validated);
  event.path = checkpoints_.write_hypotheses(*result);
  state.validation_due = false;
  state.validated_update = state.trainer.update;
  checkpoints_.note_change();
  event.metrics = take_metrics(result->values, kind);
  if (kind == ValidationKind::start) event.message = "before the first update";
  event.stalled = state.stalled;
  events_.update_clock();
  event.elapsed_seconds = state.train_seconds;
  for (const MetricValue& metric : event.metrics)
    if (run_.options.keep_best && metric.improved) checkpoints_.make_due();
  events_.emit(session, event);
  return true;
}

std::optional<ValidationResult> Validator::measure(const CancelToken* cancel) {
  run_.gemm_tuning.acquire();
  if (run_.group.has_peers()) return measure_together();
  const EmaWeights weights(run_.trainer);
  return validate_model(run_.context, run_.model, run_.data, run_.options, cancel, step_graphs());
}

// Each rank measures its part. The values of rank 0 count, as its host has computed them.
std::optional<ValidationResult> Validator::measure_together() {
  run_.trainer.weights().complete_with_ema();
  Communicator& group = *run_.group.communicator;
  ValidationPart own;
  agree_after(group, [&] {
    const EmaWeights weights(run_.trainer);
    own = validate_part(run_.context, run_.model, run_.data, run_.options, nullptr, run_.group,
                        step_graphs());
  });
  std::vector<ValidationPart> parts;
  for (const std::string& bytes : group.host_all_gather(encode_part(own)))
    parts.push_back(decode_part(bytes));
  ValidationResult result =
      join_parts(parts, run_.data, run_.options, threads_for_lines(run_.context));
  std::string bytes(result.values.size() * sizeof(double), '\0');
  std::memcpy(bytes.data(), result.values.data(), bytes.size());
  bytes = from_root(bytes, run_.group);
  require(bytes.size() == result.values.size() * sizeof(double), ErrorCode::internal,
          "training run", "rank 0 has measured other metrics");
  std::memcpy(result.values.data(), bytes.data(), bytes.size());
  return result;
}

// Graphs keep memory between validations, and the GEMM kernels that they were captured with.
StepGraphs* Validator::step_graphs() {
  if (run_.options.memory_limit > 0 || run_.options.batch_fit || run_.gemm_tuning.open() ||
      !StepGraphs::usable(run_.context, run_.model))
    return nullptr;
  if (!step_graphs_) step_graphs_ = std::make_unique<StepGraphs>(run_.context, run_.model);
  return step_graphs_.get();
}

std::vector<MetricValue> Validator::take_metrics(const std::vector<double>& values,
                                                 ValidationKind kind) {
  RunState& state = run_.state;
  // Denser models do not compete with those that the run is for. Neither does the model that it
  // starts from.
  const bool counts =
      kind != ValidationKind::start && !prunes_after(run_.options, state.trainer.update);
  const bool scheduled = kind == ValidationKind::scheduled;
  std::vector<MetricValue> metrics;
  for (size_t i = 0; i < values.size(); ++i) {
    auto& [name, best] = state.best[i];
    const auto& judges = deciding_.names;
    const bool improved = counts && std::find(judges.begin(), judges.end(), name) != judges.end() &&
                          state.trainer.far_off_in_a_row == 0 && beats(name, values[i], best);
    if (kind == ValidationKind::start && std::isfinite(values[i]))
      state.start.emplace_back(name, values[i]);
    if (improved) best = BestMetric{values[i], state.trainer.update};
    int64_t& stalled = state.stalled_by_metric[name];
    stalled = improved ? 0 : stalled + (scheduled && counts ? 1 : 0);
    metrics.push_back({name, values[i], best ? best->value : values[i], best ? best->update : 0,
                       improved, decides(name)});
  }
  state.stalled = stalled();
  return metrics;
}

int64_t Validator::stalled() const {
  const auto& by_metric = run_.state.stalled_by_metric;
  const auto of = [&](const std::string& metric) {
    const auto found = by_metric.find(metric);
    return found == by_metric.end() ? 0 : found->second;
  };
  int64_t count = of(deciding_.names.front());
  const StoppingMetrics stopping = run_.options.early_stopping_on;
  if (stopping == StoppingMetrics::first) return count;
  for (const std::string& metric : deciding_.names)
    count = stopping == StoppingMetrics::any ? std::max(count, of(metric))
                                             : std::min(count, of(metric));
  return count;
}

void Validator::warn_if_worse_than_start(RunSession& session) {
  const auto of = [&](const auto& entry) { return decides(entry.first); };
  const auto start = std::ranges::find_if(run_.state.start, of);
  const auto found = std::ranges::find_if(run_.state.best, of);
  if (start == run_.state.start.end() || found == run_.state.best.end()) return;
  const auto& [name, best] = *found;
  if (best && is_better(metric_named(name, "validation"), best->value, start->second)) return;
  std::string text = concat("training has not made the model better: ", name, " was ",
                            start->second, " before the first update, ");
  text += best ? concat("and the best since is ", best->value, ", at update ", best->update)
               : std::string("and no later model was measured as a candidate");
  events_.warn(session, text);
}

std::vector<MetricValue> Validator::measure_file(RunSession& session,
                                                 const std::filesystem::path& weights) {
  std::vector<MetricValue> metrics;
  if (!run_.data.valid) return metrics;
  events_.emit(session, events_.make(TrainEventKind::validating));
  const auto result = measure_values_of(weights, session.cancel());
  for (size_t i = 0; result && i < result->values.size(); ++i) {
    const auto& [name, best] = run_.state.best[i];
    const double value = result->values[i];
    metrics.push_back({name, value, best ? best->value : value, best ? best->update : 0,
                       beats(name, value, best), decides(name)});
  }
  return metrics;
}

std::optional<ValidationResult> Validator::measure_values_of(const std::filesystem::path& weights,
                                                             const CancelToken* cancel) {
  ParameterStore& parameters = run_.model.parameters();
  Context& context = run_.context;
  const Tensor master = parameters.master().detach();
  std::vector<std::byte> own(master.bytes());
  context.to_host(master, own.data(), own.size());
  const auto put_back = [&] {
    context.backend().copy_from_host(master.raw(), own.data(), own.size());
    parameters.follow_master(context);
    context.backend().synchronize();
  };
  std::optional<ValidationResult> result;
  try {
    load_weights(context, SafetensorsReader::open(weights, ElementTypes::ours_and_codes),
                 run_.model);
    result = validate_model(context, run_.model, run_.data, run_.options, cancel);
  } catch (...) {
    put_back();
    throw;
  }
  put_back();
  return result;
}

}  // namespace trafo
