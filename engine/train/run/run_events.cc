#include "engine/train/run/run_events.h"
#include "engine/core/numeric/portable_math.h"

#include <algorithm>
#include <cmath>

namespace trafo {
namespace {

std::string describe(const PairDrops& dropped, int64_t pairs, const std::string& name,
                     const TokenizedCorpusOptions& options) {
  std::string text;
  if (dropped.cut > 0)
    text = concat(name, ": ", dropped.cut, " of ", pairs, " texts, over ", options.max_length,
                  " tokens, cut into ", dropped.windows, " windows");
  if (dropped.total() == 0) return text;
  if (!text.empty()) text += "; ";
  text += concat(name, ": ", dropped.total(), " of ", pairs + dropped.total(), " pairs left out, ",
                 dropped.empty, " with an empty side, ", dropped.too_long, " over ",
                 options.max_length, " tokens");
  if (options.max_length_ratio > 0)
    text += concat(", ", dropped.ratio, " with a side over ", options.max_length_ratio,
                   " times the other");
  if (options.drop_identical) text += concat(", ", dropped.identical, " with the same text twice");
  return text;
}

std::string describe(const PairSource& corpus, const std::string& name) {
  const CorpusReport& report = corpus.report();
  return describe({report.dropped_empty, report.dropped_long, report.dropped_ratio,
                   report.dropped_identical, report.cut, report.windows},
                  report.pairs, name, corpus.options());
}

}  // namespace

void RunEvents::begin_counting() {
  process_seconds_ = 0;
  since_log_ = {};
  progress_at_start_ = run_.progress();
  epochs_at_start_ = epochs_done();
}

double RunEvents::epochs_done() const {
  return static_cast<double>(run_.state.position.epoch) + batches_.epoch_fraction();
}

void RunEvents::update_clock() {
  const auto now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - clock_).count();
  clock_ = now;
  run_.state.train_seconds += seconds;
  process_seconds_ += seconds;
}

void RunEvents::add_seconds_since(Clock::time_point begin) {
  since_log_.seconds += std::chrono::duration<double>(Clock::now() - begin).count();
}

void RunEvents::add(const StepResult& result) {
  if (result.skipped) return;
  RunState& state = run_.state;
  const int64_t labels = std::llround(result.labels);
  const int64_t source =
      run_.model.spec().has_encoder() ? result.source_tokens : result.target_tokens - labels;
  state.target_tokens += labels;
  state.source_tokens += source;
  since_log_.target_tokens += labels;
  since_log_.source_tokens += source;
  state.log.loss += result.loss * result.units;
  state.log.nll += result.nll * result.labels;
  state.log.units += result.units;
  state.log.labels += result.labels;
  const auto names = run_.trainer.objective().metrics();
  state.log.metrics.resize(names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    auto& [name, sum] = state.log.metrics[i];
    name = names[i];
    sum += result.metrics[i] * result.units;
  }
  state.grad_norm = result.grad_norm;
}

double RunEvents::seconds_left() const {
  double left = INFINITY;
  const auto consider = [&](int64_t limit, double now, double at_start, int64_t phase_start = 0) {
    if (limit <= 0 || now <= at_start) return;
    const double rate = (now - at_start) / process_seconds_;
    const double end = static_cast<double>(phase_start) + static_cast<double>(limit);
    left = std::min(left, std::max(0.0, end - now) / rate);
  };
  const TrainOptions& options = run_.options;
  const Progress now = run_.progress();
  consider(options.after_updates, static_cast<double>(now.updates),
           static_cast<double>(progress_at_start_.updates), run_.state.phase_update);
  consider(options.after_tokens, static_cast<double>(now.tokens),
           static_cast<double>(progress_at_start_.tokens), run_.state.phase_tokens);
  consider(options.after_epochs, epochs_done(), epochs_at_start_);
  return std::isfinite(left) ? left : -1;
}

TrainEvent RunEvents::make(TrainEventKind kind) const {
  const RunState& state = run_.state;
  TrainEvent event;
  event.kind = kind;
  event.update = state.trainer.update;
  event.epoch = state.position.epoch + 1;
  event.epoch_fraction = epochs_done() - static_cast<double>(state.position.epoch);
  if (state.log.units > 0) {
    event.loss = state.log.loss / state.log.units;
    event.nll = state.log.nll / state.log.labels;
    event.perplexity = portable_exp(event.nll);
    std::vector<double> means;
    for (const auto& [name, sum] : state.log.metrics) means.push_back(sum / state.log.units);
    run_.trainer.objective().report(means);
    for (size_t i = 0; i < means.size(); ++i)
      event.objective_metrics.emplace_back(state.log.metrics[i].first, means[i]);
  }
  event.grad_norm = state.grad_norm;
  event.learning_rate = run_.trainer.learning_rate(std::max<int64_t>(1, state.trainer.update));
  event.target_tokens = state.target_tokens;
  event.source_tokens = state.source_tokens;
  if (since_log_.seconds > 0) {
    event.target_tokens_per_second =
        static_cast<double>(since_log_.target_tokens) / since_log_.seconds;
    event.source_tokens_per_second =
        static_cast<double>(since_log_.source_tokens) / since_log_.seconds;
  }
  event.elapsed_seconds = state.train_seconds;
  event.eta_seconds = seconds_left();
  const MemoryStats memory = run_.context.backend().memory_stats();
  event.memory_bytes = memory.allocated_bytes;
  event.peak_memory_bytes = memory.peak_bytes;
  event.skipped_updates = state.trainer.skipped;
  event.stalled = state.stalled;
  return event;
}

TrainEvent RunEvents::make_log() {
  TrainEvent event = make(TrainEventKind::log);
  run_.state.log = {};
  since_log_ = {};
  return event;
}

TrainEvent RunEvents::make_skipped(const StepResult& result) const {
  TrainEvent event = make(TrainEventKind::skipped);
  event.loss = result.loss;
  event.nll = result.nll;
  event.perplexity = portable_exp(result.nll);
  event.grad_norm = result.grad_norm;
  event.message = concat("loss ", result.loss, ", gradient norm ", result.grad_norm,
                         ": update skipped, ", run_.state.trainer.skipped_in_a_row, " in a row");
  return event;
}

TrainEvent RunEvents::make_epoch() const {
  const int64_t ended = run_.state.position.epoch;
  const PairSource& corpus = *run_.data.train;
  const PairDrops& dropped = batches_.dropped();
  TrainEvent event = make(TrainEventKind::epoch);
  event.epoch = ended;
  event.epoch_fraction = 1;
  event.message = describe(dropped, corpus.draws(ended - 1) - dropped.total(),
                           concat("epoch ", ended), corpus.options());
  return event;
}

void RunEvents::emit(RunSession& session, const TrainEvent& event) {
  run_.trainer.weights().complete();
  session.report(event);
}

void RunEvents::warn(RunSession& session, const std::string& text) {
  if (text.empty()) return;
  TrainEvent event = make(TrainEventKind::warning);
  event.message = text;
  emit(session, event);
}

void RunEvents::announce(RunSession& session, const std::string& checkpoint) {
  TrainEvent event = make(checkpoint.empty() ? TrainEventKind::started : TrainEventKind::resumed);
  event.message = describe(*run_.data.train, "training corpus");
  if (run_.data.valid) {
    const std::string valid = describe(*run_.data.valid, "validation corpus");
    if (!event.message.empty() && !valid.empty()) event.message += "; ";
    event.message += valid;
  }
  event.path = checkpoint;
  emit(session, event);
}

void RunEvents::report_tuning(RunSession& session) {
  if (!session.has_callback()) return;  // the next call of run() may have one
  for (GemmTuning::Notice& notice : run_.gemm_tuning.take_notices()) {
    TrainEvent event =
        make(notice.is_warning ? TrainEventKind::warning : TrainEventKind::gemm_autotuned);
    event.message = std::move(notice.text);
    emit(session, event);
  }
}

}  // namespace trafo
