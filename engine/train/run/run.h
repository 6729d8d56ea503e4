// A training run: epochs over a corpus, validation, checkpoints, resuming, stopping.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "engine/train/plan/run_plan.h"
#include "engine/train/run/checkpointer.h"
#include "engine/train/run/run_events.h"
#include "engine/train/run/session.h"
#include "engine/train/run/training_data.h"
#include "engine/train/run/update_batches.h"
#include "engine/train/run/validator.h"
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
  std::optional<ValidationResult> validate(const CancelToken* cancel = nullptr) {
    return validator_.measure(cancel);
  }

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
  void set_batches(BatchFunction batches) { batches_.set_function(std::move(batches)); }

  // Saves a checkpoint if there is a run directory and something has changed since the last one. It
  // is whole when the call returns.
  void save();

  const RunState& state() const { return state_; }
  // Of the newest update, skipped or not.
  const StepResult& last_step() const { return last_step_; }
  bool resumed() const { return checkpoints_.resumed(); }
  const TrainingData& data() const { return data_; }
  const TrainOptions& options() const { return options_; }  // with the chosen batch_tokens
  const RunPlan& plan() const { return plan_; }

 private:
  RunSummary train(RunSession& session, int64_t max_updates);
  StopReason loop(RunSession& session, int64_t max_updates);
  void submit_update(RunSession& session);
  bool must_await_all(const Progress& before, const Progress& after, int64_t pause_at) const;
  void await_update(RunSession& session);
  void await_all(RunSession& session);
  void abandon_updates();
  void report_update(RunSession& session, const StepResult& result, const Progress& before);
  StopReason end_at_limit(RunSession& session);
  StopReason limit_of(const Progress& done) const;
  void announce(RunSession& session);
  void begin_counting();

  TrainingGroup group_;
  TrainingData data_;
  TrainOptions options_;
  std::unique_ptr<Batcher> first_batches_;  // for the plan; batches_ takes it over
  RunPlan plan_;
  Trainer trainer_;
  GemmTuning gemm_tuning_;
  UpdateBatches batches_;
  RunState state_;
  RunParts parts_;
  RunEvents events_;
  Checkpointer checkpoints_;
  Validator validator_;
  StepResult last_step_;
  bool announced_ = false;
};

}  // namespace trafo
