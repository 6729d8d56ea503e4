// TrainingRun: clocks, rates and events.
#include <algorithm>
#include <cmath>

#include "engine/train/run/run.h"

namespace trafo {
namespace {

std::string describe(const PairDrops& dropped, int64_t pairs, const std::string& name,
                     const TokenizedCorpusOptions& options) {
  if (dropped.total() == 0) return {};
  std::string text = concat(name, ": ", dropped.total(), " of ", pairs + dropped.total(),
                            " pairs left out, ", dropped.empty, " with an empty side, ",
                            dropped.too_long, " over ", options.max_length, " tokens");
  if (options.max_length_ratio > 0)
    text += concat(", ", dropped.ratio, " with a side over ", options.max_length_ratio,
                   " times the other");
  if (options.drop_identical) text += concat(", ", dropped.identical, " with the same text twice");
  return text;
}

std::string describe(const PairSource& corpus, const std::string& name) {
  const CorpusReport& report = corpus.report();
  return describe(
      {report.dropped_empty, report.dropped_long, report.dropped_ratio, report.dropped_identical},
      report.pairs, name, corpus.options());
}

}  // namespace

const char* stop_reason_name(StopReason reason) {
  switch (reason) {
    case StopReason::none:
      return "none";
    case StopReason::limit:
      return "limit";
    case StopReason::early_stopping:
      return "early stopping";
    case StopReason::callback:
      return "callback";
    case StopReason::cancelled:
      return "cancelled";
    case StopReason::paused:
      return "paused";
  }
  return "unknown";
}

Progress TrainingRun::progress() const {
  return {state_.trainer.update, state_.target_tokens, state_.position.epoch};
}

Progress TrainingRun::expected_progress() const {
  Progress expected = progress();
  expected.updates += static_cast<int64_t>(in_flight_.size());
  for (const InFlight& step : in_flight_) expected.tokens += step.labels;
  if (!in_flight_.empty()) expected.epochs = in_flight_.back().position.epoch;
  return expected;
}

double TrainingRun::epochs_done() const {
  return static_cast<double>(state_.position.epoch) + epoch_fraction_;
}

void TrainingRun::update_clock() {
  const auto now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - clock_).count();
  clock_ = now;
  state_.train_seconds += seconds;
  process_seconds_ += seconds;
}

double TrainingRun::seconds_left() const {
  double left = INFINITY;
  const auto consider = [&](int64_t limit, double now, double at_start, int64_t phase_start = 0) {
    if (limit <= 0 || now <= at_start) return;
    const double rate = (now - at_start) / process_seconds_;
    const double end = static_cast<double>(phase_start) + static_cast<double>(limit);
    left = std::min(left, std::max(0.0, end - now) / rate);
  };
  const Progress now = progress();
  consider(options_.after_updates, static_cast<double>(now.updates),
           static_cast<double>(progress_at_start_.updates), state_.phase_update);
  consider(options_.after_tokens, static_cast<double>(now.tokens),
           static_cast<double>(progress_at_start_.tokens), state_.phase_tokens);
  consider(options_.after_epochs, epochs_done(), epochs_at_start_);
  return std::isfinite(left) ? left : -1;
}

TrainEvent TrainingRun::make_event(TrainEventKind kind) const {
  TrainEvent event;
  event.kind = kind;
  event.update = state_.trainer.update;
  event.epoch = state_.position.epoch + 1;
  event.epoch_fraction = epochs_done() - static_cast<double>(state_.position.epoch);
  if (state_.log.labels > 0) {
    event.loss = state_.log.loss / state_.log.labels;
    event.nll = state_.log.nll / state_.log.labels;
    event.perplexity = std::exp(event.nll);
  }
  event.grad_norm = state_.grad_norm;
  event.learning_rate = trainer_.learning_rate(std::max<int64_t>(1, state_.trainer.update));
  event.target_tokens = state_.target_tokens;
  event.source_tokens = state_.source_tokens;
  if (since_log_.seconds > 0) {
    event.target_tokens_per_second =
        static_cast<double>(since_log_.target_tokens) / since_log_.seconds;
    event.source_tokens_per_second =
        static_cast<double>(since_log_.source_tokens) / since_log_.seconds;
  }
  event.elapsed_seconds = state_.train_seconds;
  event.eta_seconds = seconds_left();
  const MemoryStats memory = context_.backend().memory_stats();
  event.memory_bytes = memory.allocated_bytes;
  event.peak_memory_bytes = memory.peak_bytes;
  event.skipped_updates = state_.trainer.skipped;
  event.stalled = state_.stalled;
  return event;
}

std::string TrainingRun::describe_dropped() const {
  const int64_t draws = data_.train->draws(state_.position.epoch - 1);
  return describe(dropped_, draws - dropped_.total(), concat("epoch ", state_.position.epoch),
                  data_.train->options());
}

// Collective with peers: callbacks may read the weights.
void TrainingRun::emit(Session& session, const TrainEvent& event) {
  trainer_.complete_masters();
  if (session.callback && session.callback(event) != 0) session.stop = true;
}

void TrainingRun::announce(Session& session) {
  if (announced_) return;
  announced_ = true;
  for (const Error& error : refused_) {
    TrainEvent event = make_event(TrainEventKind::checkpoint_refused);
    event.message = error.message();
    emit(session, event);
  }
  TrainEvent event = make_event(resumed_ ? TrainEventKind::resumed : TrainEventKind::started);
  event.message = describe(*data_.train, "training corpus");
  if (data_.valid) {
    const std::string valid = describe(*data_.valid, "validation corpus");
    if (!event.message.empty() && !valid.empty()) event.message += "; ";
    event.message += valid;
  }
  if (resumed_)
    event.path = CheckpointDirectory(*run_directory_).path(state_.trainer.update).string();
  emit(session, event);
  for (const std::string& text :
       {directory_ ? directory_->unprotected() : std::string(), deciding_.warning}) {
    if (text.empty()) continue;
    TrainEvent warning = make_event(TrainEventKind::warning);
    warning.message = text;
    emit(session, warning);
  }
}

void TrainingRun::report_tuning(Session& session) {
  if (!session.callback) return;  // the next call of run() may have one
  for (GemmTuning::Notice& notice : gemm_tuning_.take_notices()) {
    TrainEvent event =
        make_event(notice.is_warning ? TrainEventKind::warning : TrainEventKind::gemm_autotuned);
    event.message = std::move(notice.text);
    emit(session, event);
  }
}

}  // namespace trafo
