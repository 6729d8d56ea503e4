#include "engine/train/run/run.h"

#include <algorithm>
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
  check_teacher(data, model);
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
  RunPlan plan = plan_run(context, model, batcher, data.valid.get(), options, resumed, group);
  if (options.batch_fit && !resumed && group.has_peers()) {
    const int64_t fits_all = least_of_all(plan.batch_tokens, group);
    if (fits_all < plan.batch_tokens) {
      batcher.restart(fits_all);
      plan = plan_run(context, model, batcher, data.valid.get(), options, true, group);
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
  if (model.teacher() && options.teacher_weight > 0) identity.teacher = model.teacher()->checksum;
  identity.validation = validation_identity(data, options);
  identity.phase = options.phase;
  identity.restart_validation = options.restart_validation;
  return identity;
}

// Metrics in the order of the options, with their best values so far. Metrics that are no longer
// measured follow, because their best checkpoints are still kept.
void merge_best(const TrainOptions& options, RunState& state) {
  const auto saved = std::move(state.best);
  state.best.clear();
  const auto find = [](auto& list, const std::string& name) {
    return std::find_if(list.begin(), list.end(),
                        [&](const auto& each) { return each.first == name; });
  };
  for (const std::string& name : options.valid_metrics) {
    const auto found = find(saved, name);
    state.best.emplace_back(name, found == saved.end() ? std::nullopt : found->second);
  }
  for (const auto& entry : saved)
    if (find(state.best, entry.first) == state.best.end()) state.best.push_back(entry);
}

}  // namespace

TrainingRun::TrainingRun(Context& context, Model& model, TrainingData data,
                         const TrainOptions& options,
                         const std::optional<std::filesystem::path>& run_directory,
                         Communicator* group) try
    : context_(context),
      model_(model),
      group_(group),
      data_(checked(context, std::move(data), model, options, run_directory.has_value(), group_)),
      options_(with_saved_sizes(options, run_directory, group_)),
      deciding_(deciding_metrics(data_, options_)),
      first_batches_(std::make_unique<Batcher>(*data_.train, data_order(data_, options_, group_))),
      plan_(planned(context, model, data_, *first_batches_, options_, run_directory, group_)),
      trainer_(context, model, options_, group_),
      gemm_tuning_(context.backend().gemm_tuner(), options_.autotune_gemm, options_.lanes),
      batcher_(std::move(first_batches_)),
      identity_(identity_of(model, data_, options_)),
      run_directory_(run_directory),
      background_save_(context.backend().stream_device()),
      micro_batches_(static_cast<size_t>(options_.gradient_accumulation * options_.lanes)) {
  trainer_.reserve(buckets_of_an_update(plan_.buckets, options_));
  first_position_ = state_.position = batcher_.state();
  open_directory();
  restore();
  merge_best(options_, state_);
  begin_counting();
  if (data_.tokenizer) model.set_origin({model.origin().file, identity_.tokenizer});
} catch (...) {
  leave_unless_agreed(group);
  throw;
}

void TrainingRun::open_directory() {
  const auto open = [this] {
    if (run_directory_ && group_.rank == 0) directory_.emplace(*run_directory_);
  };
  if (group_.has_peers())
    agree_after(*group_.communicator, open);
  else
    open();
}

TrainingRun::Session TrainingRun::new_session(const TrainCallback& callback,
                                              const CancelToken* cancel) const {
  return {callback, cancel, false, group_.has_peers()};
}

void TrainingRun::begin_counting() {
  state_.stalled = stalled();  // the options may name other metrics than the saved run
  if (!identity_.validation.empty()) state_.validation = identity_.validation;
  trainer_.set_schedule_start(state_.phase_update);
  epoch_fraction_ = batcher_.epoch_fraction();
  progress_at_start_ = progress();
  epochs_at_start_ = epochs_done();
}

void TrainingRun::restore() {
  if (group_.has_peers()) {
    std::optional<GemmCache> kernels = restore_together();
    if (kernels)
      gemm_tuning_.resume(std::move(*kernels), "the checkpoint");
    else
      gemm_tuning_.begin();
    if (resumed_ && directory_ && refused_.empty()) tidy(state_);
    if (!resumed_) require_same_weights();
    return;
  }
  const auto seek = [this](RunState& state) { this->seek(state); };
  std::optional<RunDirectory::Checkpoint> checkpoint;
  if (directory_) checkpoint = directory_->restore(context_, model_, trainer_, identity_, seek);
  if (checkpoint && checkpoint->kernels)
    gemm_tuning_.resume(std::move(*checkpoint->kernels), directory_->kernels_path().string());
  else
    gemm_tuning_.begin();
  if (!checkpoint) return;
  refused_ = std::move(checkpoint->refused);
  state_ = std::move(checkpoint->state);
  resumed_ = true;
  // A process that was killed after the save has not done this. Damaged checkpoints would count as
  // the newest, so none is deleted beside them.
  if (refused_.empty()) tidy(state_);
}

// To the position of a state that is restored. The data of a new phase begins anew.
void TrainingRun::seek(RunState& state) {
  if (state.begins_phase) state.position = first_position_;
  state.begins_phase = false;
  batcher_.seek(state.position);
}

void TrainingRun::tidy(const RunState& state) {
  directory_->tidy(state, options_.keep_best, std::max(options_.keep_last, options_.average_last));
}

void TrainingRun::write_checkpoint(ByteSink& sink) {
  require_alone("writes");
  const TrainCallback none;
  Session session = new_session(none, nullptr);
  clock_ = Clock::now();
  while (!in_flight_.empty())
    await_step(session);  // a callback may have thrown before they were awaited
  update_clock();
  gemm_tuning_.close();
  auto files = checkpoint_files(context_, model_, trainer_, state_, identity_);
  const std::optional<GemmCache> kernels = gemm_tuning_.cache();
  if (kernels && !kernels->choices.empty()) files.push_back(gemm_cache_file(*kernels));
  write_checkpoint_stream(sink, files);
}

void TrainingRun::require_alone(const char* what) const {
  require(!group_.has_peers(), ErrorCode::unsupported, "training run", "a group of several ranks ",
          what, " no checkpoint as one piece of memory: give a run directory");
}

void TrainingRun::read_checkpoint(std::vector<std::byte> bytes) {
  require_alone("reads");
  const CheckpointStream stream(std::move(bytes));
  const CheckpointContent content = stream.content();
  std::optional<GemmCache> kernels = stream.kernels();
  const TrainCallback none;
  Session session = new_session(none, nullptr);
  while (!in_flight_.empty()) await_step(session);
  batcher_ahead_ = true;  // if the restore fails, the next update seeks back
  state_ =
      restore_checkpoint(context_, model_, trainer_, identity_, content, [this](RunState& state) {
        merge_best(options_, state);
        seek(state);
      });
  batcher_ahead_ = false;
  if (kernels) {
    gemm_tuning_.resume(std::move(*kernels), "the checkpoint");
    trainer_.drop_graphs();  // they have the kernels of before
    step_graphs_.reset();
  }
  last_step_ = {};
  changed_ = true;
  save_due_ = false;
  averaged_update_ = -1;
  process_seconds_ = 0;
  since_log_ = {};
  begin_counting();
}

RunSummary TrainingRun::run(const TrainCallback& callback, const CancelToken* cancel,
                            int64_t max_updates) {
  require_argument(max_updates >= 0, "training run", "max_updates",
                   " must be 0 (no limit) or above, got ", max_updates);
  Session session = new_session(callback, cancel);
  if (!group_.has_peers()) return run(session, max_updates);
  try {
    require_same(*group_.communicator,
                 std::vector<GroupField>{{"max_updates", std::to_string(max_updates)}});
    return run(session, max_updates);
  } catch (...) {
    if (leave_unless_agreed(group_.communicator))
      trainer_.replace_incomplete_masters();
    else
      trainer_.complete_masters();
    throw;
  }
}

RunSummary TrainingRun::run(Session& session, int64_t max_updates) {
  clock_ = Clock::now();
  gemm_tuning_.acquire();
  StopReason reason = StopReason::none;
  try {
    reason = loop(session, max_updates);
  } catch (const Error& error) {
    finish_save_after(error, session);
    throw;
  }
  const bool finished = reason == StopReason::limit || reason == StopReason::early_stopping;
  if (reason != StopReason::paused) {
    gemm_tuning_.close();
    report_tuning(session);
    save(session);
  }
  finish_save(session);
  if (finished && options_.average_last > 0) average(session);
  if (finished) warn_if_worse_than_start(session);
  TrainEvent event = make_event(finished ? TrainEventKind::finished : TrainEventKind::stopped);
  event.reason = reason;
  emit(session, event);
  update_clock();
  return {reason, state_};
}

StopReason TrainingRun::loop(Session& session, int64_t max_updates) {
  require(options_.phase == 1 || state_.phase_update > 0, ErrorCode::invalid_argument,
          "training run", "phase is ", options_.phase, ", but there is no checkpoint of phase ",
          options_.phase - 1, " to begin it from");
  announce(session);
  if (start_is_due() && !run_validation(session, ValidationKind::start))
    return StopReason::cancelled;
  const int64_t pause_at = max_updates > 0 ? state_.trainer.update + max_updates : INT64_MAX;
  while (true) {
    report_tuning(session);
    if (session.must_await())
      while (!in_flight_.empty()) await_step(session);
    if (in_flight_.empty()) {
      vote(session);
      if (background_save_.done()) finish_save(session);
      if (!run_due_work(session)) return StopReason::cancelled;
      if (const StopReason end = end_reason(progress()); end != StopReason::none) {
        const bool measured = state_.validated_update == state_.trainer.update;
        if (data_.valid && !measured && !run_validation(session, ValidationKind::final))
          return StopReason::cancelled;
        trainer_.check_loss(1);
        return end;
      }
      if (session.cancelled()) return StopReason::cancelled;
      if (session.stopped()) return StopReason::callback;
      if (state_.trainer.update >= pause_at) return StopReason::paused;
    }
    advance(session, pause_at);
  }
}

StopReason TrainingRun::end_reason(const Progress& done) const {
  const auto reached = [](int64_t limit, int64_t count) { return limit > 0 && count >= limit; };
  if (reached(options_.after_updates, done.updates - state_.phase_update) ||
      reached(options_.after_epochs, done.epochs) ||
      reached(options_.after_tokens, done.tokens - state_.phase_tokens))
    return StopReason::limit;
  return reached(options_.early_stopping, state_.stalled) ? StopReason::early_stopping
                                                          : StopReason::none;
}

// --- one update ---

// Submits an update and awaits older ones: all of them if an event may be due.
void TrainingRun::advance(Session& session, int64_t pause_at) {
  const auto begin = Clock::now();
  const Progress before = expected_progress();
  submit_step(session);
  size_t ahead = 0;
  if (trainer_.works_ahead() && !must_await_all(before, expected_progress(), pause_at))
    ahead = kInFlight;
  since_log_.seconds += std::chrono::duration<double>(Clock::now() - begin).count();
  while (in_flight_.size() > ahead) await_step(session);
}

// Assumes that no update in flight is skipped. A skipped one makes events due later, never earlier.
bool TrainingRun::must_await_all(const Progress& before, const Progress& after,
                                 int64_t pause_at) const {
  return end_reason(after) != StopReason::none || after.updates >= pause_at ||
         after.updates <= options_.log_first || is_due(options_.log_freq, before, after) ||
         (data_.valid && is_due(options_.valid_freq, before, after)) ||
         (run_directory_ && is_due(options_.save_freq, before, after));
}

void TrainingRun::submit_step(Session& session) {
  // An update never reaches into the next epoch, so that N epochs are exactly N passes.
  size_t count = 0;
  const size_t before = in_flight_.size();
  try {
    seek_after_newest();
    batcher_ahead_ = true;
    {
      const PhaseRange phase(context_, "batch", false);
      do {
        next_batch(count++);
      } while (count < micro_batches_.size() && !micro_batches_[count - 1].last_in_epoch);
    }
    const auto batches = std::span<const PackedBatchHost>(micro_batches_).first(count);
    int64_t labels = 0;
    for (const PackedBatchHost& batch : batches) labels += batch.label_count;
    // Before submit(): nothing may fail once the trainer has the update.
    gemm_tuning_.before_update();
    in_flight_.push_back(
        {batcher_.state(), batcher_.epoch_fraction(), labels, batches.back().epoch_drops});
    trainer_.submit(batches, session.asks_for_end() ? Vote::stop : Vote::none);
    batcher_ahead_ = false;
  } catch (...) {
    if (in_flight_.size() > before) in_flight_.pop_back();
    while (!in_flight_.empty()) await_step(session);
    throw;
  }
}

// Fills micro_batches_[number].
void TrainingRun::next_batch(size_t number) {
  PackedBatchHost& batch = micro_batches_[number];
  if (!batches_) return batcher_.next(batch);
  // The number of a micro-batch in the run is that of its forward pass, which checkpoints store.
  batches_(static_cast<int64_t>(trainer_.state().forward_passes + number), batch);
}

// Moves the batcher to behind the newest update in flight. A failed update does not do this itself,
// because seeking allocates and memory may have run out; the next update does.
void TrainingRun::seek_after_newest() {
  if (!batcher_ahead_) return;
  batcher_.seek(in_flight_.empty() ? state_.position : in_flight_.back().position);
  batcher_ahead_ = false;
}

// Drops all updates in flight after an error that ends the run.
void TrainingRun::abandon_steps() {
  while (trainer_.in_flight() > 0) {
    try {
      trainer_.await();
    } catch (const Error&) {  // the first error is the one that is reported
    }
  }
  in_flight_.clear();
  state_.trainer = trainer_.state();
  batcher_ahead_ = true;
}

void TrainingRun::await_step(Session& session) {
  const Progress before = progress();
  const auto begin = Clock::now();
  try {
    last_step_ = trainer_.await();
  } catch (...) {
    abandon_steps();
    throw;
  }
  const StepResult& result = last_step_;
  session.vote_due = session.vote_due || result.stop_wanted;
  since_log_.seconds += std::chrono::duration<double>(Clock::now() - begin).count();
  state_.position = in_flight_.front().position;
  epoch_fraction_ = in_flight_.front().epoch_fraction;
  if (state_.position.epoch > before.epochs) dropped_ = in_flight_.front().dropped;
  in_flight_.pop_front();
  state_.trainer = trainer_.state();
  changed_ = true;
  if (!result.skipped) {
    const int64_t labels = std::llround(result.labels);
    const int64_t source =
        model_.spec().has_encoder() ? result.source_tokens : result.target_tokens - labels;
    state_.target_tokens += labels;
    state_.source_tokens += source;
    since_log_.target_tokens += labels;
    since_log_.source_tokens += source;
    state_.log.loss += result.loss * result.labels;
    state_.log.nll += result.nll * result.labels;
    state_.log.labels += result.labels;
    state_.grad_norm = result.grad_norm;
  }
  emit_step_events(session, result, before, progress().epochs > before.epochs);
}

// Emits the events of an update and notes the work that it makes due.
void TrainingRun::emit_step_events(Session& session, const StepResult& result,
                                   const Progress& before, bool epoch_ended) {
  const Progress after = progress();
  state_.validation_due = data_.valid && is_due(options_.valid_freq, before, after);
  save_due_ = save_due_ || (run_directory_ && is_due(options_.save_freq, before, after));
  const bool first = !result.skipped && after.updates <= options_.log_first;
  const bool log = state_.log.labels > 0 && (first || is_due(options_.log_freq, before, after));
  update_clock();
  std::vector<TrainEvent> events;
  if (result.skipped) {
    events.push_back(make_event(TrainEventKind::skipped));
    events.back().loss = result.loss;
    events.back().nll = result.nll;
    events.back().perplexity = std::exp(result.nll);
    events.back().grad_norm = result.grad_norm;
    events.back().message =
        concat("loss ", result.loss, ", gradient norm ", result.grad_norm, ": update skipped, ",
               state_.trainer.skipped_in_a_row, " in a row");
  }
  if (log) {
    events.push_back(make_event(TrainEventKind::log));
    state_.log = {};
    since_log_ = {};
  }
  if (epoch_ended) {
    events.push_back(make_event(TrainEventKind::epoch));
    events.back().epoch = after.epochs;
    events.back().epoch_fraction = 1;
    events.back().message = describe_dropped();
  }
  // Last, because a callback may throw: the state must be complete then.
  for (const TrainEvent& event : events) emit(session, event);
}

// Validates and saves if due. False if cancelled before all was done; the rest stays due.
bool TrainingRun::run_due_work(Session& session) {
  if (state_.validation_due && !run_validation(session, ValidationKind::scheduled)) return false;
  if (save_due_) save(session);
  return true;
}

}  // namespace trafo
