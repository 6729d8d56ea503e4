// A training run: epochs over a corpus, validation, checkpoints, resuming, stopping.
#pragma once

#include <chrono>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

#include "engine/core/cancel.h"
#include "engine/decode/step_graphs.h"
#include "engine/train/checkpoint/background_save.h"
#include "engine/train/checkpoint/run_directory.h"
#include "engine/train/plan/run_plan.h"
#include "engine/train/run/event.h"
#include "engine/train/run/training_data.h"
#include "engine/train/run/validation.h"
#include "engine/train/step/gemm_tuning.h"
#include "engine/train/step/trainer.h"

namespace trafo {

struct RunSummary {
  StopReason reason = StopReason::none;
  RunState state;
};

// Context and model must outlive the run. One thread at a time.
class TrainingRun {
 public:
  // With a run directory, resumes from its newest complete checkpoint: the model gets the saved
  // weights, and training continues with the same bits as without the stop. INVALID_ARGUMENT if
  // model, vocabulary, corpus or fixed options are not those of the checkpoint. With
  // options.batch_fit, batch_tokens is that of the checkpoint. Without a run directory, nothing is
  // saved. A run that does not fit into memory is refused, see plan_run().
  //
  // With a group, which must outlive the run, the ranks train one model together: the constructor
  // and all functions that train, validate or save are collective, with the same arguments on every
  // rank. Rank 0 alone reads and writes the run directory. INVALID_ARGUMENT names a rank that has
  // other data, options or weights. Every rank validates, gets the same events, and stops if one of
  // them wants to. An error of an update, a validation or a save is thrown by all ranks, as
  // AgreedError. After any other error, and any exception of a callback, this rank has left the
  // group.
  TrainingRun(Context& context, Model& model, TrainingData data, const TrainOptions& options,
              const std::optional<std::filesystem::path>& run_directory = std::nullopt,
              Communicator* group = nullptr);

  // Trains until a limit of the options, `max_updates` more updates (0: no such limit), the
  // callback or the cancel token ends it. Call again to continue. The run is saved at its end, and
  // when it is cancelled or stopped by the callback. On an accelerator, checkpoints are written
  // beside training: the event `saved` and errors of a save come up to one log interval after the
  // checkpoint is whole, and before run() returns. Errors: NON_FINITE (diverged), IO from saving,
  // and exceptions of the model or the callback. After an error other than NON_FINITE, the next
  // call continues and repeats the failed work. In place of a checkpoint that failed beside
  // training, it saves the run as it is by then: RunState::best may name an update that has no
  // checkpoint. After NON_FINITE on an accelerator, updates that were in flight may have been
  // applied although the data position is before them.
  RunSummary run(const TrainCallback& callback = {}, const CancelToken* cancel = nullptr,
                 int64_t max_updates = 0);

  // Validates the weights that would be saved; needs data().valid. No value if cancelled.
  std::optional<ValidationResult> validate(const CancelToken* cancel = nullptr);

  // Writes the whole run as bytes, or resumes from such bytes, with the same bits as from a run
  // directory. read_checkpoint() refuses the same as a run directory does and then changes nothing.
  void write_checkpoint(ByteSink& sink);
  void read_checkpoint(std::vector<std::byte> bytes);
  // Replaces the learning rate schedule by a function of the update and the scheduled rate. It is
  // called on the thread that uses the run, ahead of the updates and more than once. Empty: the
  // options' schedule. A run that resumes needs the same function.
  void set_rate(RateFunction rate) { trainer_.set_rate(std::move(rate)); }

  // Replaces the batches of the corpus by a function of the micro-batch's number, counted from 0
  // over the whole run. It is called on the thread that uses the run; there are no epochs. A run
  // that resumes needs the same function. Empty: the corpus again, from its last position.
  using BatchFunction = std::function<void(int64_t index, PackedBatchHost& batch)>;
  void set_batches(BatchFunction batches) { batches_ = std::move(batches); }

  // Saves a checkpoint if there is a run directory and something has changed since the last one. It
  // is whole when the call returns.
  void save();

  const RunState& state() const { return state_; }
  // Of the newest update, skipped or not.
  const StepResult& last_step() const { return last_step_; }
  bool resumed() const { return resumed_; }
  const TrainingData& data() const { return data_; }
  const TrainOptions& options() const { return options_; }  // with the chosen batch_tokens
  const RunPlan& plan() const { return plan_; }

 private:
  using Clock = std::chrono::steady_clock;
  // The state of one call of run().
  struct Session {
    const TrainCallback& callback;
    const CancelToken* cancel;
    bool stop = false;  // the callback returned non-zero
    // With peers, what the ranks have voted counts.
    bool has_peers = false, any_stop = false, any_cancelled = false;
    bool vote_due = false;  // a rank asked for the end: await all updates and vote
    bool asks_for_cancel() const { return cancel != nullptr && cancel->is_cancelled(); }
    bool asks_for_end() const { return stop || asks_for_cancel(); }
    bool cancelled() const { return has_peers ? any_cancelled : asks_for_cancel(); }
    bool stopped() const { return has_peers ? any_stop : stop; }
    bool must_await() const { return has_peers ? vote_due : asks_for_end(); }
  };

  Session new_session(const TrainCallback& callback, const CancelToken* cancel) const;
  RunSummary run(Session& session, int64_t max_updates);
  void restore();
  void open_directory();
  void require_alone(const char* what) const;
  std::optional<GemmCache> restore_together();
  void save_together();
  std::optional<ValidationResult> validate_together();
  void average_files(Session& session);
  void require_same_weights();
  void seek(RunState& state);
  void tidy(const RunState& state);
  void save_files();
  bool saves_in_background() const;
  void save_in_place(Session& session);
  void start_save(Session& session);
  void finish_save(Session& session);
  void finish_save_after(const Error& error, Session& session);
  TrainEvent saved_event(int64_t update) const;
  void vote(Session& session);
  StepGraphs* step_graphs();
  void write_hypotheses(const ValidationResult& result, TrainEvent& event);
  void begin_counting();
  void announce(Session& session);
  void report_tuning(Session& session);
  void advance(Session& session, int64_t pause_at);
  void submit_step(Session& session);
  void next_batch(size_t number);
  void seek_after_newest();
  void await_step(Session& session);
  void abandon_steps();
  bool must_await_all(const Progress& before, const Progress& after, int64_t pause_at) const;
  void emit_step_events(Session& session, const StepResult& result, const Progress& before,
                        bool epoch_ended);
  bool run_due_work(Session& session);
  enum class ValidationKind { scheduled, final, start };
  bool run_validation(Session& session, ValidationKind kind);
  bool start_is_due() const;
  void warn_if_worse_than_start(Session& session);
  // Validates the weights in a file and restores the model's own afterwards.
  std::optional<ValidationResult> validate_file(const std::filesystem::path& weights,
                                                const CancelToken* cancel);
  std::vector<MetricValue> take_metrics(const std::vector<double>& values, ValidationKind kind);
  void save(Session& session);
  void average(Session& session);
  int64_t stalled() const;
  bool decides(const std::string& metric) const { return metric == deciding_.names.front(); }
  StopReason end_reason(const Progress& done) const;
  StopReason loop(Session& session, int64_t max_updates);

  Progress progress() const;
  Progress expected_progress() const;  // when all updates in flight are done, if none is skipped
  double epochs_done() const;          // with the fraction of the current one
  double seconds_left() const;
  void update_clock();
  TrainEvent make_event(TrainEventKind kind) const;
  std::string describe_dropped() const;  // in the epoch that ended last
  void emit(Session& session, const TrainEvent& event);

  Context& context_;
  Model& model_;
  TrainingGroup group_;
  TrainingData data_;
  TrainOptions options_;
  DecidingMetrics deciding_;
  std::unique_ptr<Batcher> first_batches_;  // for the plan; batcher_ takes it over
  RunPlan plan_;
  Trainer trainer_;
  GemmTuning gemm_tuning_;
  PrefetchingBatcher batcher_;
  bool batcher_ahead_ = false;  // its position is not behind the newest update in flight
  RunIdentity identity_;
  BatcherState first_position_;
  std::optional<std::filesystem::path> run_directory_;
  std::optional<RunDirectory> directory_;    // on rank 0
  BackgroundSave background_save_;           // its destructor waits, before directory_ goes
  std::unique_ptr<StepGraphs> step_graphs_;  // of validations; null until the first
  RunState state_;
  BatchFunction batches_;  // empty: batcher_
  std::vector<PackedBatchHost> micro_batches_;
  // An update that was submitted and not yet awaited.
  struct InFlight {
    BatcherState position;  // behind its batches
    double epoch_fraction;
    int64_t labels;
    PairDrops dropped;  // in the epoch that it ended
  };
  std::deque<InFlight> in_flight_;

  double epoch_fraction_ = 0;  // of the epoch that state_.position is in
  PairDrops dropped_;          // in the epoch that ended last

  StepResult last_step_;
  bool resumed_ = false;
  bool announced_ = false;
  std::vector<Error> refused_;  // damaged checkpoints, until they are reported
  bool changed_ = false;        // since the last save
  bool save_due_ = false;
  int64_t averaged_update_ = -1;  // the newest update when the average was written

  // For speeds, of this process only.
  Clock::time_point clock_;
  double process_seconds_ = 0;
  double epochs_at_start_ = 0;
  Progress progress_at_start_;
  struct {
    double seconds = 0;
    int64_t target_tokens = 0, source_tokens = 0;
  } since_log_;  // since the last log event

  int64_t background_update_ = 0;  // of the save in flight
};

}  // namespace trafo
