// The run level of training: epochs over a corpus, validation, checkpoints, resuming, stopping.
#pragma once

#include <chrono>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

#include "engine/train/cancel.h"
#include "engine/train/event.h"
#include "engine/train/run_directory.h"
#include "engine/train/run_plan.h"
#include "engine/train/trainer.h"
#include "engine/train/training_data.h"
#include "engine/train/validation.h"

namespace trafo {

struct RunSummary {
  StopReason reason = StopReason::none;
  RunState state;
};

// Context and model must outlive the run. One thread at a time.
class TrainingRun {
 public:
  // With a run directory, continues where its newest complete checkpoint stopped: the model gets
  // the saved weights, and everything that follows is bitwise what would have followed without the
  // stop. INVALID_ARGUMENT if model, vocabulary, corpus or fixed options are not those of the
  // checkpoint; of options.batch_fit, the batch_tokens are. Without one, nothing is saved. What the
  // memory has no room for is refused: see plan_run().
  TrainingRun(Context& context, Model& model, TrainingData data, const TrainOptions& options,
              const std::optional<std::filesystem::path>& run_directory = std::nullopt);

  // Trains until a limit of the options, `max_updates` more updates (0: no such limit), the
  // callback or the cancel token ends it; call again to go on. At its end, and when it is
  // cancelled or stopped by the callback, the run is saved. Errors: NON_FINITE (diverged), IO from
  // saving, what the model or the callback throws. Unless it diverged, a call after an error
  // continues, and does again what had failed. After NON_FINITE on an accelerator, updates that
  // were already under way may have been applied although the data position stands before them.
  RunSummary run(const TrainCallback& callback = {}, const CancelToken* cancel = nullptr,
                 int64_t max_updates = 0);

  // Measures the weights that would be saved, now; needs data().valid. No value: cancelled.
  std::optional<ValidationResult> validate(const CancelToken* cancel = nullptr);

  // The whole run as bytes, and the run that such bytes hold: what follows is bitwise what would
  // have followed there. Refuses what a run directory's checkpoint is refused for; nothing has
  // changed then.
  void write_checkpoint(ByteSink& sink);
  void read_checkpoint(std::vector<std::byte> bytes);
  // The learning rate of an update by a function of it and of what the options' schedule says;
  // asked on the thread that uses the run, for updates ahead and more than once. Empty: the
  // schedule's. A run that continues needs the same function.
  void set_rate(RateFunction rate) { trainer_.set_rate(std::move(rate)); }

  // Micro-batches by a function of their number, counted from 0 over the whole run, instead of the
  // corpus's, asked for on the thread that uses the run; there are no epochs then. A run that
  // continues needs the same function. Empty: the corpus's again, from where they were.
  using BatchFunction = std::function<void(int64_t index, PackedBatchHost& batch)>;
  void set_batches(BatchFunction batches) { batches_ = std::move(batches); }

  // Saves now, if there is a run directory and something has changed since the last time.
  void save();

  const RunState& state() const { return state_; }
  // Of the newest update, skipped or not.
  const StepResult& last_step() const { return last_step_; }
  bool resumed() const { return resumed_; }
  const TrainingData& data() const { return data_; }
  const TrainOptions& options() const { return options_; }  // batch_tokens as it was chosen
  const RunPlan& plan() const { return plan_; }

 private:
  using Clock = std::chrono::steady_clock;
  // What one call of run() is doing.
  struct Session {
    const TrainCallback& callback;
    const CancelToken* cancel;
    bool stop = false;  // the callback asked for it
    bool cancelled() const { return cancel != nullptr && cancel->is_cancelled(); }
  };

  void restore();
  void begin_counting();
  void announce(Session& session);
  void advance(Session& session, int64_t pause_at);
  void start_step(Session& session);
  void next_batch(size_t number);
  void follow_position();
  void finish_step(Session& session);
  void abandon_steps();
  bool waits_for_results(const Progress& before, const Progress& after, int64_t pause_at) const;
  void report(Session& session, const StepResult& result, const Progress& before, bool epoch_ended);
  bool settle(Session& session);
  bool run_validation(Session& session, bool scheduled);
  // Measures the weights in a file; the model has its own again after it.
  std::optional<ValidationResult> validate_file(const std::filesystem::path& weights,
                                                const CancelToken* cancel);
  std::vector<MetricValue> take_metrics(const std::vector<double>& values, bool scheduled);
  void save(Session& session);
  void average(Session& session);
  int64_t stalled() const;
  StopReason end_reason(const Progress& done) const;
  StopReason loop(Session& session, int64_t max_updates);

  Progress progress() const;
  Progress expected_progress() const;  // once all that was started is done, if none is skipped
  double epochs_done() const;          // with the fraction of the current one
  double seconds_left() const;
  void update_clock();
  TrainEvent make_event(TrainEventKind kind) const;
  std::string describe_dropped() const;  // in the epoch that ended last
  void emit(Session& session, const TrainEvent& event) const;

  Context& context_;
  Model& model_;
  TrainingData data_;
  TrainOptions options_;
  std::unique_ptr<Batcher> first_batches_;  // what is planned with; then batcher_ has it
  RunPlan plan_;
  Trainer trainer_;
  PrefetchingBatcher batcher_;
  bool batcher_moved_ = false;  // it stands elsewhere than after the newest update that was started
  RunIdentity identity_;
  std::optional<RunDirectory> directory_;
  RunState state_;
  BatchFunction batches_;  // empty: batcher_
  std::vector<PackedBatchHost> micro_batches_;
  // Updates the device has been given and whose results are not in yet.
  struct Started {
    BatcherState position;  // after its batches
    double epoch_fraction;
    int64_t labels;
    PairDrops dropped;  // in the epoch that it ended
  };
  std::deque<Started> started_;

  double epoch_fraction_ = 0;  // of the epoch that state_.position is in
  PairDrops dropped_;          // in the epoch that ended last

  StepResult last_step_;
  bool resumed_ = false;
  bool announced_ = false;
  std::vector<Error> refused_;  // damaged checkpoints, until they are announced
  bool changed_ = false;        // since the last save
  bool save_due_ = false;
  int64_t averaged_update_ = -1;  // the newest update when the mean was made

  // Speed: of this process only.
  Clock::time_point clock_;
  double process_seconds_ = 0;
  double epochs_at_start_ = 0;
  Progress progress_at_start_;
  struct {
    double seconds = 0;
    int64_t target_tokens = 0, source_tokens = 0;
  } window_;  // since the last display
};

}  // namespace trafo
