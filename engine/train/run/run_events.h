// The events of a training run: clocks, speeds and texts.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "engine/train/run/run_parts.h"
#include "engine/train/run/session.h"
#include "engine/train/run/update_batches.h"

namespace trafo {

class RunEvents {
 public:
  // `parts` and `batches` must outlive it.
  RunEvents(const RunParts& parts, const UpdateBatches& batches) : run_(parts), batches_(batches) {}

  // Speeds and the time that is left count from here.
  void begin_counting();
  // Time since start_clock() or the last update_clock() counts as training.
  void start_clock() { clock_ = Clock::now(); }
  void update_clock();
  // Seconds of updates, for the speeds of the next log event.
  using Clock = std::chrono::steady_clock;
  void add_seconds_since(Clock::time_point begin);
  // Takes over the losses and counts of an update.
  void add(const StepResult& result);

  TrainEvent make(TrainEventKind kind) const;
  // Sums and speeds start anew after it.
  TrainEvent make_log();
  TrainEvent make_skipped(const StepResult& result) const;
  TrainEvent make_epoch() const;  // of the epoch that has ended
  // Collective with peers: callbacks may read the weights.
  void emit(RunSession& session, const TrainEvent& event);
  void warn(RunSession& session, const std::string& text);
  void report_tuning(RunSession& session);

  // The first event of a process. `checkpoint`: from which the run resumes; empty: it is new.
  void announce(RunSession& session, const std::string& checkpoint);

 private:
  double epochs_done() const;  // with the fraction of the current one
  double seconds_left() const;

  RunParts run_;
  const UpdateBatches& batches_;
  // Of this process only.
  Clock::time_point clock_;
  double process_seconds_ = 0;
  double epochs_at_start_ = 0;
  Progress progress_at_start_;
  struct {
    double seconds = 0;
    int64_t target_tokens = 0, source_tokens = 0;
  } since_log_;  // since the last log event
};

}  // namespace trafo
