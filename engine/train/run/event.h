// The events that a training run reports.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace trafo {

// Values are part of the C ABI: never renumber, only append.
enum class TrainEventKind : int32_t {
  started = 0,             // a new run; message: pairs dropped from the corpora, if any
  resumed = 1,             // resumed from a checkpoint; path: the checkpoint
  checkpoint_refused = 2,  // a newer checkpoint is damaged and was skipped; message: why
  log = 3,                 // loss, perplexity, gradient norm and speed since the last log event
  skipped = 4,             // an update with a non-finite loss or gradient was skipped
  epoch = 5,  // an epoch is complete; message: pairs dropped in it that `started` did not report
  validated = 6,        // metrics hold the results; path: the hypotheses, if any were written
  saved = 7,            // path: the checkpoint
  finished = 8,         // a limit was reached, see reason
  stopped = 9,          // the run can resume, see reason
  validating = 10,      // a validation begins; it may take long
  averaged = 11,        // path: the average of the newest checkpoints; metrics: its, if measured
  gemm_autotuned = 12,  // message: GEMMs that were timed, seconds, where other kernels came from
  warning = 13,         // something cannot be used and the run continues without it; message: what
};

// Values are part of the C ABI: never renumber, only append.
enum class StopReason : int32_t {
  none = 0,
  limit = 1,           // TrainOptions::after_*
  early_stopping = 2,  // no improvement in TrainOptions::early_stopping validations
  callback = 3,        // the callback returned non-zero
  cancelled = 4,       // the CancelToken was set
  paused = 5,          // run() has done max_updates updates
};

struct MetricValue {
  std::string name;  // "ce-mean-words", "bleu", "chrf"
  double value = 0;
  double best = 0;  // of the run, this value included
  int64_t best_update = 0;
  bool improved = false;
  bool decides = false;  // which checkpoint is best
};

struct TrainEvent {
  TrainEventKind kind = TrainEventKind::started;
  StopReason reason = StopReason::none;
  int64_t update = 0;
  int64_t epoch = 1;          // the current one, counted from 1; epoch events: the completed one
  double epoch_fraction = 0;  // of the current epoch, 0 to 1
  // Means since the last log event: per unit of the objective (Objective::units), nll per label.
  // `skipped` events: of that update, not finite.
  double loss = 0;
  double nll = 0;
  double perplexity = 0;  // exp(nll)
  double grad_norm = 0;   // of the last update, before clipping
  double learning_rate = 0;
  int64_t target_tokens = 0;  // of the run
  int64_t source_tokens = 0;
  double target_tokens_per_second = 0;  // since the last log event, without validation and saving
  double source_tokens_per_second = 0;
  double elapsed_seconds = 0;  // of the run, in all its processes
  double eta_seconds = -1;     // to the nearest limit; -1: no limit or no measured speed yet
  int64_t memory_bytes = 0;    // in use, by the device's allocator
  int64_t peak_memory_bytes = 0;
  int64_t skipped_updates = 0;
  int64_t stalled = 0;  // validations in a row that early stopping counts
  std::vector<MetricValue> metrics;
  // Of the objective: means per unit since the last log event.
  std::vector<std::pair<std::string, double>> objective_metrics;
  std::string message;
  std::string path;
};

// Called between updates on the thread that trains. A non-zero result stops the run after the
// current update. An exception passes through run(); the run stays usable.
using TrainCallback = std::function<int(const TrainEvent&)>;

}  // namespace trafo
