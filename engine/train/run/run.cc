#include "engine/train/run/run.h"

#include <cmath>

#include "engine/core/argument_error.h"
#include "engine/train/parallel/run_group.h"

namespace trafo {
namespace {

// Updates in flight. With so many the device does not wait for the host between updates of a few
// hundred microseconds.
constexpr size_t kInFlight = 8;
static_assert(kInFlight < Trainer::kMaxInFlight);

TrainingData checked(const Context& context, TrainingData data, const Model& model,
                     const TrainOptions& options, bool has_directory, const TrainingGroup& group) {
  validate(options);
  require_argument(options.average_last == 0 || has_directory, "training run", "average_last",
                   " needs a run directory, because it averages checkpoints");
  check_data(data, model.spec(), options);
  check_frozen_model(data);
  make_objective(options, data.frozen)->check(model);
  if (group.has_peers()) compare_ranks(context, data, model, options, has_directory, group);
  return data;
}

BatcherOptions data_order(const TrainingData& data, const TrainOptions& options,
                          const TrainingGroup& group) {
  BatcherOptions order;
  order.seed = options.seed;
  order.start_id = data.tokens.start();
  order.sort_window = options.sort_window > 0 ? options.sort_window : kSortWindow;
  order.maxi_batch = options.maxi_batch;
  if (options.batch_fit) order.batch_tokens = options.batch_tokens;
  order.lanes = options.lanes;
  order.own = lanes_of(group.rank, group.size, options.lanes);
  return order;
}

// The options with what the saved run has chosen: its lanes, and batch_tokens (batch_fit), which a
// new phase chooses again.
TrainOptions with_saved_sizes(TrainOptions options,
                              const std::optional<std::filesystem::path>& run_directory,
                              const TrainingGroup& group) {
  const std::optional<SavedSizes> saved = sizes_of_root(run_directory, group);
  if (options.batch_fit && saved && saved->phase >= options.phase)
    options.batch_tokens = saved->batch_tokens;
  if (options.lanes == 1) options.lanes = saved ? saved->lanes : group.size;
  validate(options);
  return options;
}

RunPlan planned(const Context& context, const Model& model, const TrainingData& data,
                Batcher& batcher, TrainOptions& options,
                const std::optional<std::filesystem::path>& run_directory,
                const TrainingGroup& group) {
  const std::optional<SavedSizes> saved = sizes_of_root(run_directory, group);
  const bool resumed = saved && saved->phase >= options.phase;
  RunPlan plan = plan_run(context, model, batcher, data, options, resumed, group);
  if (options.batch_fit && !resumed && group.has_peers()) {
    const int64_t fits_all = least_of_all(plan.batch_tokens, group);
    if (fits_all < plan.batch_tokens) {
      batcher.restart(fits_all);
      plan = plan_run(context, model, batcher, data, options, true, group);
    }
  }
  options.batch_tokens = options.batch_fit ? plan.batch_tokens : options.batch_tokens;
  if (options.batch_fit && batcher.batch_tokens() != options.batch_tokens)
    batcher.restart(options.batch_tokens);
  return plan;
}

RunIdentity identity_of(const Model& model, const TrainingData& data, const TrainOptions& options) {
  RunIdentity identity;
  identity.corpus = data.train->fingerprint();
  if (data.tokenizer) identity.tokenizer = vocabulary_checksum(*data.tokenizer);
  identity.options = fixed_options_json(options);
  identity.groups = parameter_groups_json(model.parameters());
  if (data.frozen && data.frozen->role == FrozenRole::reference)
    identity.reference = data.frozen->checksum;
  else if (data.frozen && options.teacher_weight > 0)
    identity.teacher = data.frozen->checksum;
  identity.validation = validation_identity(data, options);
  identity.phase = options.phase;
  identity.restart_validation = options.restart_validation;
  return identity;
}

}  // namespace

TrainingRun::TrainingRun(Context& context, Model& model, TrainingData data,
                         const TrainOptions& options,
                         const std::optional<std::filesystem::path>& run_directory,
                         Communicator* group) try
    : group_(group),
      data_(checked(context, std::move(data), model, options, run_directory.has_value(), group_)),
      options_(with_saved_sizes(options, run_directory, group_)),
      first_batches_(std::make_unique<Batcher>(*data_.train, data_order(data_, options_, group_))),
      plan_(planned(context, model, data_, *first_batches_, options_, run_directory, group_)),
      trainer_(context, model, options_, group_, make_objective(options_, data_.frozen)),
      gemm_tuning_(context.backend().gemm_tuner(), options_.autotune_gemm, options_.lanes),
      batches_(std::move(first_batches_),
               static_cast<size_t>(options_.gradient_accumulation * options_.lanes)),
      parts_{context, model, group_, data_, options_, trainer_, gemm_tuning_, state_},
      events_(parts_, batches_),
      checkpoints_(parts_, identity_of(model, data_, options_), batches_, events_, run_directory),
      validator_(parts_, events_, checkpoints_) {
  trainer_.reserve(buckets_of_an_update(plan_.buckets, options_));
  state_.position = batches_.position();
  checkpoints_.restore();
  validator_.order_metrics(state_);
  begin_counting();
  if (data_.tokenizer) model.set_origin({model.origin().file, checkpoints_.identity().tokenizer});
} catch (...) {
  leave_unless_agreed(group);
  throw;
}

void TrainingRun::begin_counting() {
  validator_.begin_counting();
  trainer_.set_schedule_start(state_.phase_update);
  batches_.restored();
  events_.begin_counting();
}

// --- the run ---

RunSummary TrainingRun::run(const TrainCallback& callback, const CancelToken* cancel,
                            int64_t max_updates) {
  require_argument(max_updates >= 0, "training run", "max_updates",
                   " must be 0 (no limit) or above, got ", max_updates);
  require(data_.train->has_pairs() || batches_.has_function(), ErrorCode::invalid_argument,
          "training run",
          "there is no training corpus: give the trainer batches (trafo_trainer_set_batches)");
  RunSession session(group_, callback, cancel);
  if (!group_.has_peers()) return train(session, max_updates);
  try {
    require_same(*group_.communicator,
                 std::vector<GroupField>{{"max_updates", std::to_string(max_updates)}});
    return train(session, max_updates);
  } catch (...) {
    if (leave_unless_agreed(group_.communicator))
      trainer_.weights().replace_incomplete();
    else
      trainer_.weights().complete();
    throw;
  }
}

RunSummary TrainingRun::train(RunSession& session, int64_t max_updates) {
  events_.start_clock();
  gemm_tuning_.acquire();
  StopReason reason = StopReason::none;
  try {
    reason = loop(session, max_updates);
  } catch (const Error& error) {
    checkpoints_.finish_save_after(error, session);
    throw;
  }
  const bool finished = reason == StopReason::limit || reason == StopReason::early_stopping;
  if (reason != StopReason::paused) {
    gemm_tuning_.close();
    events_.report_tuning(session);
    checkpoints_.save(session);
  }
  checkpoints_.finish_save(session);
  if (finished && options_.average_last > 0) checkpoints_.average(session, validator_);
  if (finished) validator_.warn_if_worse_than_start(session);
  TrainEvent event = events_.make(finished ? TrainEventKind::finished : TrainEventKind::stopped);
  event.reason = reason;
  events_.emit(session, event);
  events_.update_clock();
  return {reason, state_};
}

// Validations and checkpoints are due between two updates, when none is in flight. On an
// accelerator, several are in flight as long as nothing is due.
StopReason TrainingRun::loop(RunSession& session, int64_t max_updates) {
  announce(session);
  if (validator_.start_is_due() && !validator_.run(session, ValidationKind::start))
    return StopReason::cancelled;
  const int64_t pause_at = max_updates > 0 ? state_.trainer.update + max_updates : INT64_MAX;
  while (true) {
    events_.report_tuning(session);
    if (session.must_await()) await_all(session);
    if (batches_.in_flight() == 0) {
      session.vote();
      if (checkpoints_.background_save_done()) checkpoints_.finish_save(session);
      if (state_.validation_due && !validator_.run(session, ValidationKind::scheduled))
        return StopReason::cancelled;
      if (checkpoints_.is_due()) checkpoints_.save(session);
      if (limit_of(parts_.progress()) != StopReason::none) return end_at_limit(session);
      if (session.cancelled()) return StopReason::cancelled;
      if (session.stopped()) return StopReason::callback;
      if (state_.trainer.update >= pause_at) return StopReason::paused;
    }
    const auto begin = RunEvents::Clock::now();
    const Progress before = batches_.expected(parts_.progress());
    submit_update(session);
    const bool goes_ahead = trainer_.works_ahead() &&
                            !must_await_all(before, batches_.expected(parts_.progress()), pause_at);
    events_.add_seconds_since(begin);
    while (batches_.in_flight() > (goes_ahead ? kInFlight : 0)) await_update(session);
  }
}

StopReason TrainingRun::limit_of(const Progress& done) const {
  const auto reached = [](int64_t limit, int64_t count) { return limit > 0 && count >= limit; };
  if (reached(options_.after_updates, done.updates - state_.phase_update) ||
      reached(options_.after_epochs, done.epochs) ||
      reached(options_.after_tokens, done.tokens - state_.phase_tokens))
    return StopReason::limit;
  return reached(options_.early_stopping, state_.stalled) ? StopReason::early_stopping
                                                          : StopReason::none;
}

StopReason TrainingRun::end_at_limit(RunSession& session) {
  const StopReason reason = limit_of(parts_.progress());
  const bool measured = state_.validated_update == state_.trainer.update;
  if (data_.valid && !measured && !validator_.run(session, ValidationKind::final))
    return StopReason::cancelled;
  trainer_.check_loss(1);
  return reason;
}

void TrainingRun::announce(RunSession& session) {
  require(options_.phase == 1 || state_.phase_update > 0, ErrorCode::invalid_argument,
          "training run", "phase is ", options_.phase, ", but there is no checkpoint of phase ",
          options_.phase - 1, " to begin it from");
  if (announced_) return;
  announced_ = true;
  for (const Error& error : checkpoints_.refused()) {
    TrainEvent event = events_.make(TrainEventKind::checkpoint_refused);
    event.message = error.message();
    events_.emit(session, event);
  }
  events_.announce(session, checkpoints_.resumed_from());
  events_.warn(session, checkpoints_.unprotected());
  events_.warn(session, validator_.warning());
}

// --- one update ---

// Packs the next update and starts it (Trainer::train_step).
void TrainingRun::submit_update(RunSession& session) {
  try {
    std::span<const PackedBatchHost> batches;
    {
      const PhaseRange phase(parts_.context, "batch", false);
      batches = batches_.pack(state_.position, trainer_.state().forward_passes);
    }
    // Before submit(): nothing may fail once the trainer has the update.
    gemm_tuning_.before_update();
    trainer_.submit(batches, session.asks_for_end() ? Vote::stop : Vote::none);
    batches_.accept();
  } catch (...) {
    batches_.reject();
    await_all(session);
    throw;
  }
}

// Whether events, validations, checkpoints or the end may be due after the newest update. Assumes
// that no update in flight is skipped. A skipped one makes events due later, never earlier.
bool TrainingRun::must_await_all(const Progress& before, const Progress& after,
                                 int64_t pause_at) const {
  return limit_of(after) != StopReason::none || after.updates >= pause_at ||
         after.updates <= options_.log_first || is_due(options_.log_freq, before, after) ||
         (data_.valid && is_due(options_.valid_freq, before, after)) ||
         (checkpoints_.has_directory() && is_due(options_.save_freq, before, after));
}

void TrainingRun::await_all(RunSession& session) {
  while (batches_.in_flight() > 0) await_update(session);
}

void TrainingRun::await_update(RunSession& session) {
  const Progress before = parts_.progress();
  const auto begin = RunEvents::Clock::now();
  try {
    last_step_ = trainer_.await();
  } catch (...) {
    abandon_updates();
    throw;
  }
  if (last_step_.stop_wanted) session.call_vote();
  events_.add_seconds_since(begin);
  batches_.complete_oldest(state_.position);
  state_.trainer = trainer_.state();
  checkpoints_.note_change();
  events_.add(last_step_);
  report_update(session, last_step_, before);
}

// Drops all updates in flight after an error that ends the run.
void TrainingRun::abandon_updates() {
  while (trainer_.in_flight() > 0) {
    try {
      trainer_.await();
    } catch (const Error&) {  // the first error is the one that is reported
    }
  }
  batches_.abandon();
  state_.trainer = trainer_.state();
}

// Emits the events of an update and notes the work that it makes due.
void TrainingRun::report_update(RunSession& session, const StepResult& result,
                                const Progress& before) {
  const Progress after = parts_.progress();
  state_.validation_due = data_.valid && is_due(options_.valid_freq, before, after);
  if (is_due(options_.save_freq, before, after)) checkpoints_.make_due();
  const bool first = !result.skipped && after.updates <= options_.log_first;
  const bool log = state_.log.units > 0 && (first || is_due(options_.log_freq, before, after));
  events_.update_clock();
  std::vector<TrainEvent> events;
  if (result.skipped) events.push_back(events_.make_skipped(result));
  if (log) events.push_back(events_.make_log());
  if (after.epochs > before.epochs) events.push_back(events_.make_epoch());
  // Last, because a callback may throw: the state must be complete then.
  for (const TrainEvent& event : events) events_.emit(session, event);
}

// --- checkpoints on demand ---

void TrainingRun::save() {
  RunSession session(group_);
  events_.start_clock();
  await_all(session);  // a callback may have thrown before they were awaited
  checkpoints_.save(session);
  checkpoints_.finish_save(session);
}

void TrainingRun::write_checkpoint(ByteSink& sink) {
  checkpoints_.require_alone("writes");
  RunSession session(group_);
  events_.start_clock();
  await_all(session);  // a callback may have thrown before they were awaited
  events_.update_clock();
  checkpoints_.write_stream(sink);
}

void TrainingRun::read_checkpoint(std::vector<std::byte> bytes) {
  checkpoints_.require_alone("reads");
  const CheckpointStream stream(std::move(bytes));
  const CheckpointContent content = stream.content();
  const std::optional<GemmCache> kernels = stream.kernels();
  RunSession session(group_);
  await_all(session);
  batches_.will_restore();
  checkpoints_.read_stream(content, kernels, [this](RunState& state) {
    validator_.order_metrics(state);
    batches_.seek(state);
  });
  if (kernels) {
    trainer_.drop_graphs();  // they have the earlier kernels
    validator_.drop_graphs();
  }
  last_step_ = {};
  begin_counting();
}

}  // namespace trafo
