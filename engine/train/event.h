// What a training run reports while it runs.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace trafo {

// Values are part of the C ABI: never renumber, only append.
enum class TrainEventKind : int32_t {
  started = 0,             // a new run; message: what was dropped from the corpora, if anything
  resumed = 1,             // continued from a checkpoint; path: the checkpoint
  checkpoint_refused = 2,  // a newer checkpoint is damaged and was passed over; message: why
  display = 3,             // loss, perplexity, gradient norm and speed since the last display
  skipped = 4,             // an update with a loss or gradient that is not finite was left out
  epoch = 5,  // an epoch is complete; message: what was dropped in it that started did not know of
  validated = 6,    // metrics hold the results; path: the hypotheses, if any were written
  saved = 7,        // path: the checkpoint
  finished = 8,     // the run is at its end, see reason
  stopped = 9,      // it can go on, see reason
  validating = 10,  // a validation begins, which may take long
  averaged = 11,    // path: the mean of the newest checkpoints; metrics: of it, if measured
};

// Values are part of the C ABI: never renumber, only append.
enum class StopReason : int32_t {
  none = 0,
  limit = 1,           // TrainOptions::after_*
  early_stopping = 2,  // no better for TrainOptions::early_stopping validations
  callback = 3,        // the callback asked for it
  cancelled = 4,       // the CancelToken was set
  paused = 5,          // the number of updates given to run() is done
};
const char* stop_reason_name(StopReason reason);

struct MetricValue {
  std::string name;  // "ce-mean-words", "bleu", "chrf"
  double value = 0;
  double best = 0;  // of the run, this value included
  int64_t best_update = 0;
  bool improved = false;
};

struct TrainEvent {
  TrainEventKind kind = TrainEventKind::started;
  StopReason reason = StopReason::none;
  int64_t update = 0;
  int64_t epoch = 1;          // the current one, counted from 1; epoch events: the completed one
  double epoch_fraction = 0;  // of the current epoch, 0 to 1
  // Means per target token since the last display; skipped: of that update, so not finite.
  double loss = 0;        // with label smoothing
  double nll = 0;         // without
  double perplexity = 0;  // exp(nll)
  double grad_norm = 0;   // of the last update, before clipping
  double learning_rate = 0;
  int64_t target_tokens = 0;  // of the run
  int64_t source_tokens = 0;
  double target_tokens_per_second = 0;  // since the last display, without validation and saving
  double source_tokens_per_second = 0;
  double elapsed_seconds = 0;  // spent on the run, all its processes together
  double eta_seconds = -1;     // to the nearest limit; -1: no limit, or no speed known yet
  int64_t memory_bytes = 0;    // handed out by the device's allocator
  int64_t peak_memory_bytes = 0;
  int64_t skipped_updates = 0;
  int64_t stalled = 0;  // validations in a row that early stopping counts
  std::vector<MetricValue> metrics;
  std::string message;
  std::string path;
};

// Called between updates on the thread that runs the training. A result other than 0 stops the run
// after the update at hand; what it throws comes out of run(), and the run stays usable.
using TrainCallback = std::function<int(const TrainEvent&)>;

}  // namespace trafo
