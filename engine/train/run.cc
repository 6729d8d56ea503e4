#include "engine/train/run.h"

#include <algorithm>
#include <cmath>

#include "engine/models/model_io.h"

namespace trafo {
namespace {

// Enough that the device never waits for the host between updates of a few hundred microseconds.
constexpr size_t kUpdatesAhead = 8;
static_assert(kUpdatesAhead < Trainer::kMaxInFlight);

TrainingData checked(TrainingData data, const Model& model, const TrainOptions& options,
                     bool has_directory) {
  validate(options);
  require(options.average_last == 0 || has_directory, ErrorCode::invalid_argument, "training run",
          "average_last needs a run directory, whose checkpoints it is the mean of");
  check_data(data, model.config(), options);
  return data;
}

BatcherOptions data_order(const TrainingData& data, const TrainOptions& options) {
  BatcherOptions order;
  order.seed = options.seed;
  order.start_id = data.tokens.bos;
  order.sort_window = options.sort_window > 0 ? options.sort_window : kSortWindow;
  order.maxi_batch = options.maxi_batch;
  if (options.batch_fit) order.batch_tokens = options.batch_tokens;
  return order;
}

// The options with the batch_tokens of the run that is continued, if they are the run's own choice.
TrainOptions with_saved_batch(TrainOptions options,
                              const std::optional<std::filesystem::path>& run_directory) {
  if (!options.batch_fit || !run_directory) return options;
  if (const auto saved = saved_batch_tokens(*run_directory)) options.batch_tokens = *saved;
  validate(options);
  return options;
}

RunPlan planned(const Context& context, const Model& model, const TrainingData& data,
                Batcher& batcher, TrainOptions& options,
                const std::optional<std::filesystem::path>& run_directory) {
  const bool continued = run_directory && saved_batch_tokens(*run_directory);
  RunPlan plan = plan_run(context, model, batcher, data.valid.get(), options, continued);
  options.batch_tokens = options.batch_fit ? plan.batch_tokens : options.batch_tokens;
  if (options.batch_fit && batcher.batch_tokens() != options.batch_tokens)
    batcher.restart(options.batch_tokens);
  return plan;
}

RunIdentity identity_of(const Model& model, const TrainingData& data, const TrainOptions& options) {
  RunIdentity identity;
  identity.corpus = data.train->fingerprint();
  if (data.tokenizer) identity.tokenizer = tokenizer_checksum(*data.tokenizer);
  identity.options = fixed_options_json(options);
  identity.groups = parameter_groups_json(model.parameters());
  return identity;
}

// Metrics in the order of the options, with what a checkpoint knows of them; then those that are
// not measured any more, whose best checkpoints still have to be kept.
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
                         const std::optional<std::filesystem::path>& run_directory)
    : context_(context),
      model_(model),
      data_(checked(std::move(data), model, options, run_directory.has_value())),
      options_(with_saved_batch(options, run_directory)),
      first_batches_(std::make_unique<Batcher>(*data_.train, data_order(data_, options_))),
      plan_(planned(context, model, data_, *first_batches_, options_, run_directory)),
      trainer_(context, model, options_),
      batcher_(std::move(first_batches_)),
      identity_(identity_of(model, data_, options_)),
      micro_batches_(static_cast<size_t>(options.gradient_accumulation)) {
  trainer_.reserve(buckets_of_an_update(plan_.buckets, options_));
  state_.position = batcher_.state();
  // A run begins with the library's own choice of products, whatever the context has done before.
  if (GemmTuner* tuner = context.backend().gemm_tuner()) tuner->set_choices({});
  if (run_directory) {
    directory_.emplace(*run_directory);
    restore();
  }
  merge_best(options_, state_);
  begin_counting();
}

void TrainingRun::begin_counting() {
  state_.stalled = stalled();  // which metrics decide may change from one process to the next
  epoch_fraction_ = batcher_.epoch_fraction();
  progress_at_start_ = progress();
  epochs_at_start_ = epochs_done();
}

void TrainingRun::restore() {
  const auto seek = [this](const RunState& state) { batcher_.seek(state.position); };
  auto checkpoint = directory_->restore(context_, model_, trainer_, identity_, seek);
  if (!checkpoint) return;
  refused_ = std::move(checkpoint->refused);
  state_ = std::move(checkpoint->state);
  resumed_ = true;
}

void TrainingRun::write_checkpoint(ByteSink& sink) {
  const TrainCallback none;
  Session session{none, nullptr};
  clock_ = Clock::now();
  while (!started_.empty()) finish_step(session);  // a callback may have thrown among them
  update_clock();
  write_checkpoint_stream(sink, checkpoint_files(context_, model_, trainer_, state_, identity_));
}

void TrainingRun::read_checkpoint(std::vector<std::byte> bytes) {
  const CheckpointStream stream(std::move(bytes));
  const CheckpointContent content = stream.content();
  const TrainCallback none;
  Session session{none, nullptr};
  while (!started_.empty()) finish_step(session);
  batcher_moved_ = true;  // unless all of it was taken, the next update goes back
  state_ =
      restore_checkpoint(context_, model_, trainer_, identity_, content, [this](RunState& state) {
        merge_best(options_, state);
        batcher_.seek(state.position);
      });
  batcher_moved_ = false;
  last_step_ = {};
  changed_ = true;
  save_due_ = false;
  averaged_update_ = -1;
  process_seconds_ = 0;
  window_ = {};
  begin_counting();
}

RunSummary TrainingRun::run(const TrainCallback& callback, const CancelToken* cancel,
                            int64_t max_updates) {
  require(max_updates >= 0, ErrorCode::invalid_argument, "training run",
          "max_updates must be 0 (no limit) or above, got ", max_updates);
  Session session{callback, cancel};
  clock_ = Clock::now();
  const StopReason reason = loop(session, max_updates);
  const bool finished = reason == StopReason::limit || reason == StopReason::early_stopping;
  if (reason != StopReason::paused) save(session);
  if (finished && options_.average_last > 0) average(session);
  TrainEvent event = make_event(finished ? TrainEventKind::finished : TrainEventKind::stopped);
  event.reason = reason;
  emit(session, event);
  update_clock();
  return {reason, state_};
}

StopReason TrainingRun::loop(Session& session, int64_t max_updates) {
  announce(session);
  const int64_t pause_at = max_updates > 0 ? state_.trainer.update + max_updates : INT64_MAX;
  while (true) {
    if (session.stop || session.cancelled())
      while (!started_.empty()) finish_step(session);
    if (started_.empty()) {
      if (!settle(session)) return StopReason::cancelled;
      if (const StopReason end = end_reason(progress()); end != StopReason::none) {
        const bool measured = state_.validated_update == state_.trainer.update;
        if (data_.valid && !measured && !run_validation(session, false))
          return StopReason::cancelled;
        return end;
      }
      if (session.cancelled()) return StopReason::cancelled;
      if (session.stop) return StopReason::callback;
      if (state_.trainer.update >= pause_at) return StopReason::paused;
    }
    advance(session, pause_at);
  }
}

StopReason TrainingRun::end_reason(const Progress& done) const {
  const auto reached = [](int64_t limit, int64_t count) { return limit > 0 && count >= limit; };
  if (reached(options_.after_updates, done.updates) ||
      reached(options_.after_epochs, done.epochs) || reached(options_.after_tokens, done.tokens))
    return StopReason::limit;
  return reached(options_.early_stopping, state_.stalled) ? StopReason::early_stopping
                                                          : StopReason::none;
}

// --- one update ---

// Starts an update, and takes in the results of older ones: of all of them if something may be due.
void TrainingRun::advance(Session& session, int64_t pause_at) {
  const auto begin = Clock::now();
  const Progress before = expected_progress();
  start_step(session);
  size_t ahead = 0;
  if (trainer_.works_ahead() && !waits_for_results(before, expected_progress(), pause_at))
    ahead = kUpdatesAhead;
  window_.seconds += std::chrono::duration<double>(Clock::now() - begin).count();
  while (started_.size() > ahead) finish_step(session);
}

// Skipped updates make things due later than expected, never earlier.
bool TrainingRun::waits_for_results(const Progress& before, const Progress& after,
                                    int64_t pause_at) const {
  return end_reason(after) != StopReason::none || after.updates >= pause_at ||
         after.updates <= options_.log_first || is_due(options_.log_freq, before, after) ||
         (data_.valid && is_due(options_.valid_freq, before, after)) ||
         (directory_ && is_due(options_.save_freq, before, after));
}

void TrainingRun::start_step(Session& session) {
  // An update never reaches into the next epoch, so that N epochs are exactly N passes.
  size_t count = 0;
  const size_t before = started_.size();
  try {
    follow_position();
    batcher_moved_ = true;
    {
      const PhaseRange phase(context_, "batch", false);
      do {
        next_batch(count++);
      } while (count < micro_batches_.size() && !micro_batches_[count - 1].last_in_epoch);
    }
    const auto batches = std::span<const PackedBatchHost>(micro_batches_).first(count);
    int64_t labels = 0;
    for (const PackedBatchHost& batch : batches) labels += batch.label_count;
    // First: once the trainer has the update, nothing may fail that would forget it.
    started_.push_back(
        {batcher_.state(), batcher_.epoch_fraction(), labels, batches.back().epoch_drops});
    trainer_.submit(batches);
    batcher_moved_ = false;
  } catch (...) {
    if (started_.size() > before) started_.pop_back();
    while (!started_.empty()) finish_step(session);
    throw;
  }
}

// Into micro_batches_[number], of the update that is being put together.
void TrainingRun::next_batch(size_t number) {
  PackedBatchHost& batch = micro_batches_[number];
  if (!batches_) return batcher_.next(batch);
  // Every micro-batch is one forward pass, whose number checkpoints hold.
  batches_(static_cast<int64_t>(trainer_.state().forward_passes + number), batch);
}

// The batches that come are those after the newest update that was started. Seeking takes memory,
// which may be what has run out: where an update fails it is put off until the next one.
void TrainingRun::follow_position() {
  if (!batcher_moved_) return;
  batcher_.seek(started_.empty() ? state_.position : started_.back().position);
  batcher_moved_ = false;
}

// After a result that ends the run: what else was started is forgotten.
void TrainingRun::abandon_steps() {
  while (trainer_.in_flight() > 0) {
    try {
      trainer_.await();
    } catch (const Error&) {  // the first error is the one to tell
    }
  }
  started_.clear();
  state_.trainer = trainer_.state();
  batcher_moved_ = true;
}

void TrainingRun::finish_step(Session& session) {
  const Progress before = progress();
  const auto begin = Clock::now();
  try {
    last_step_ = trainer_.await();
  } catch (...) {
    abandon_steps();
    throw;
  }
  const StepResult& result = last_step_;
  window_.seconds += std::chrono::duration<double>(Clock::now() - begin).count();
  state_.position = started_.front().position;
  epoch_fraction_ = started_.front().epoch_fraction;
  if (state_.position.epoch > before.epochs) dropped_ = started_.front().dropped;
  started_.pop_front();
  state_.trainer = trainer_.state();
  changed_ = true;
  if (!result.skipped) {
    const int64_t labels = std::llround(result.labels);
    const int64_t source = model_.config().architecture == Architecture::decoder_lm
                               ? result.target_tokens - labels
                               : result.source_tokens;
    state_.target_tokens += labels;
    state_.source_tokens += source;
    window_.target_tokens += labels;
    window_.source_tokens += source;
    state_.display.loss += result.loss * result.labels;
    state_.display.nll += result.nll * result.labels;
    state_.display.labels += result.labels;
    state_.grad_norm = result.grad_norm;
  }
  report(session, result, before, progress().epochs > before.epochs);
}

// What the update makes due, and the events that belong to it.
void TrainingRun::report(Session& session, const StepResult& result, const Progress& before,
                         bool epoch_ended) {
  const Progress after = progress();
  state_.validation_due = data_.valid && is_due(options_.valid_freq, before, after);
  save_due_ = save_due_ || (directory_ && is_due(options_.save_freq, before, after));
  const bool first = !result.skipped && after.updates <= options_.log_first;
  const bool display =
      state_.display.labels > 0 && (first || is_due(options_.log_freq, before, after));
  update_clock();
  std::vector<TrainEvent> events;
  if (result.skipped) {
    events.push_back(make_event(TrainEventKind::skipped));
    events.back().loss = result.loss;
    events.back().nll = result.nll;
    events.back().perplexity = std::exp(result.nll);
    events.back().grad_norm = result.grad_norm;
    events.back().message =
        concat("loss ", result.loss, ", gradient norm ", result.grad_norm, ": update left out, ",
               state_.trainer.skipped_in_a_row, " in a row");
  }
  if (display) {
    events.push_back(make_event(TrainEventKind::display));
    state_.display = {};
    window_ = {};
  }
  if (epoch_ended) {
    events.push_back(make_event(TrainEventKind::epoch));
    events.back().epoch = after.epochs;
    events.back().epoch_fraction = 1;
    events.back().message = describe_dropped();
  }
  // Only now: a callback that throws must find the run's own books closed.
  for (const TrainEvent& event : events) emit(session, event);
}

// --- validation and saving ---

// Does what is due. False: cancelled before it was all done; what is left stays due.
bool TrainingRun::settle(Session& session) {
  if (state_.validation_due && !run_validation(session, true)) return false;
  if (save_due_) save(session);
  return true;
}

// `scheduled`: by valid_freq, so that it counts for early stopping; the one at the end of a run
// does not, or else a run that is given a higher limit later would stop earlier than one that had
// it from the start.
bool TrainingRun::run_validation(Session& session, bool scheduled) {
  if (session.cancelled()) return false;
  emit(session, make_event(TrainEventKind::validating));
  const auto result = validate(session.cancel);
  if (!result) return false;
  TrainEvent event = make_event(TrainEventKind::validated);
  if (directory_ && !result->hypotheses.empty())
    event.path = directory_->write_hypotheses(state_.trainer.update, result->hypotheses).string();
  state_.validation_due = false;
  state_.validated_update = state_.trainer.update;
  changed_ = true;
  event.metrics = take_metrics(result->values, scheduled);
  event.stalled = state_.stalled;
  update_clock();
  event.elapsed_seconds = state_.train_seconds;
  for (const MetricValue& metric : event.metrics)
    save_due_ = save_due_ || (directory_ && options_.keep_best && metric.improved);
  emit(session, event);
  return true;
}

std::optional<ValidationResult> TrainingRun::validate(const CancelToken* cancel) {
  const EmaWeights weights(trainer_);
  return validate_model(context_, model_, data_, options_, cancel);
}

std::vector<MetricValue> TrainingRun::take_metrics(const std::vector<double>& values,
                                                   bool scheduled) {
  std::vector<MetricValue> metrics;
  for (size_t i = 0; i < values.size(); ++i) {
    auto& [name, best] = state_.best[i];
    const bool improved =
        std::isfinite(values[i]) && (!best || is_better(name, values[i], best->value));
    if (improved) best = BestMetric{values[i], state_.trainer.update};
    int64_t& stalled = state_.stalled_by_metric[name];
    stalled = improved ? 0 : stalled + (scheduled ? 1 : 0);
    metrics.push_back(
        {name, values[i], best ? best->value : values[i], best ? best->update : 0, improved});
  }
  state_.stalled = stalled();
  return metrics;
}

int64_t TrainingRun::stalled() const {
  const auto of = [&](const std::string& metric) {
    const auto found = state_.stalled_by_metric.find(metric);
    return found == state_.stalled_by_metric.end() ? 0 : found->second;
  };
  int64_t count = of(options_.valid_metrics.front());
  if (options_.early_stopping_on == StoppingMetrics::first) return count;
  for (const std::string& metric : options_.valid_metrics)
    count = options_.early_stopping_on == StoppingMetrics::any ? std::max(count, of(metric))
                                                               : std::min(count, of(metric));
  return count;
}

std::optional<ValidationResult> TrainingRun::validate_file(const std::filesystem::path& weights,
                                                           const CancelToken* cancel) {
  ParameterStore& parameters = model_.parameters();
  const Tensor master = parameters.master().detach();
  std::vector<std::byte> own(master.bytes());
  context_.to_host(master, own.data(), own.size());
  const auto put_back = [&] {
    context_.backend().copy_from_host(master.raw(), own.data(), own.size());
    parameters.follow_master(context_);
    context_.backend().synchronize();
  };
  std::optional<ValidationResult> result;
  try {
    load_weights(context_, SafetensorsReader::open(weights), model_);
    result = validate_model(context_, model_, data_, options_, cancel);
  } catch (...) {
    put_back();
    throw;
  }
  put_back();
  return result;
}

// The end of a run that is done: its newest checkpoints as one model.
void TrainingRun::average(Session& session) {
  if (averaged_update_ == state_.trainer.update) return;
  const RunDirectory::Average average = directory_->average(options_.average_last);
  averaged_update_ = state_.trainer.update;
  TrainEvent event = make_event(TrainEventKind::averaged);
  event.path = average.path.string();
  for (const int64_t update : average.updates)
    event.message += concat(event.message.empty() ? "" : ", ", update);
  if (data_.valid) emit(session, make_event(TrainEventKind::validating));
  const auto result = data_.valid ? validate_file(average.path, session.cancel) : std::nullopt;
  for (size_t i = 0; result && i < result->values.size(); ++i) {
    const auto& [name, best] = state_.best[i];
    const double value = result->values[i];
    event.metrics.push_back({name, value, best ? best->value : value, best ? best->update : 0,
                             !best || is_better(name, value, best->value)});
  }
  update_clock();
  emit(session, event);
}

void TrainingRun::save() {
  const TrainCallback none;
  Session session{none, nullptr};
  clock_ = Clock::now();
  while (!started_.empty()) finish_step(session);  // a callback may have thrown among them
  save(session);
}

void TrainingRun::save(Session& session) {
  if (!directory_ || !changed_) {
    save_due_ = false;
    return;
  }
  update_clock();
  {
    const PhaseRange phase(context_, "save", true);
    directory_->save(context_, model_, trainer_, state_, identity_);
  }
  changed_ = save_due_ = false;
  directory_->tidy(state_, options_.keep_best, std::max(options_.keep_last, options_.average_last));
  update_clock();
  TrainEvent event = make_event(TrainEventKind::saved);
  event.path = directory_->checkpoint_path(state_.trainer.update).string();
  emit(session, event);
}

}  // namespace trafo
