// Validation during a run: which model is the best, and whether training still makes it better.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/decode/step_graphs.h"
#include "engine/train/run/checkpointer.h"
#include "engine/train/run/run_events.h"
#include "engine/train/run/run_parts.h"
#include "engine/train/run/validation.h"

namespace trafo {

enum class ValidationKind { scheduled, final, start };

class Validator {
 public:
  // All must outlive it.
  Validator(const RunParts& parts, RunEvents& events, Checkpointer& checkpoints);

  const std::string& warning() const { return deciding_.warning; }  // DecidingMetrics::warning
  // Metrics in the order of the options, with their best values so far. Metrics that are no longer
  // measured follow, because their best checkpoints are still kept.
  void order_metrics(RunState& state) const;
  // Follows the metrics of the options, which may differ from the metrics of the saved run.
  void begin_counting();
  void drop_graphs() { step_graphs_.reset(); }

  // The weights that would be saved. No value if cancelled. Collective.
  std::optional<ValidationResult> measure(const CancelToken* cancel);
  // The weights in a file, whose metrics are compared with the best so far; none without validation
  // data or if cancelled. Restores the model's own weights afterwards.
  std::vector<MetricValue> measure_file(RunSession& session, const std::filesystem::path& weights);

  // Measures, reports, and counts the result. Scheduled validations, by valid_freq, count for early
  // stopping. The validation at the end of a run does not count. Otherwise a run whose limit is
  // raised later would stop earlier than one that had the higher limit from the start. False if
  // cancelled.
  bool run(RunSession& session, ValidationKind kind);
  // A model that others have trained, or an earlier phase, is measured before its first update.
  bool start_is_due() const;
  // At the end of a run: training should have made the model better.
  void warn_if_worse_than_start(RunSession& session);

 private:
  std::optional<ValidationResult> measure_together();
  std::optional<ValidationResult> measure_values_of(const std::filesystem::path& weights,
                                                    const CancelToken* cancel);
  StepGraphs* step_graphs();
  std::vector<MetricValue> take_metrics(const std::vector<double>& values, ValidationKind kind);
  int64_t stalled() const;
  bool decides(const std::string& metric) const { return metric == deciding_.names.front(); }

  RunParts run_;
  RunEvents& events_;
  Checkpointer& checkpoints_;
  DecidingMetrics deciding_;
  std::unique_ptr<StepGraphs> step_graphs_;  // null until the first validation
};

}  // namespace trafo
