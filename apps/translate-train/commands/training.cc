#include "commands/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "launch/signals.h"
#include "settings/setting_types.h"

namespace translate_train {
namespace {

constexpr int64_t kFewestPairs = 100;  // to hold some out
constexpr int64_t kMostHeldOut = 2000;
// Fewer pairs say little about which checkpoint is the best.
constexpr int64_t kEnoughToJudge = 100;

std::string_view text_of(const trafo_string_view& view) {
  return {view.data, view.length};
}

double gigabytes(int64_t bytes) {
  return static_cast<double>(bytes) / 1e9;
}

class RunDisplay {
 public:
  // `device_bytes`: all of its memory; 0: not known.
  RunDisplay(int64_t device_bytes, RunRecords& records, Reporter& reporter)
      : of_device_(device_bytes > 0 ? fmt::format("/{:.1f}", gigabytes(device_bytes)) : ""),
        records_(records),
        reporter_(reporter) {}

  void show(const trafo_event& e) {
    const std::string message(text_of(e.message)), path(text_of(e.path));
    validating_.reset();
    const nlohmann::ordered_json record = records_.take(e);
    switch (e.kind) {
      case TRAFO_EVENT_STARTED:
        if (!message.empty()) reporter_.warn(message);
        break;
      case TRAFO_EVENT_RESUMED:
        reporter_.info(fmt::format("continuing after update {} from {}", grouped(e.update), path));
        break;
      case TRAFO_EVENT_CHECKPOINT_REFUSED:
        reporter_.warn("a newer checkpoint is passed over: " + message);
        break;
      case TRAFO_EVENT_EPOCH:
        if (!message.empty()) reporter_.warn(message);
        break;
      case TRAFO_EVENT_LOG:
        display(e, record);
        break;
      case TRAFO_EVENT_SKIPPED:
        reporter_.warn(fmt::format("update {}: {}", grouped(e.update), message));
        break;
      case TRAFO_EVENT_VALIDATING:
        validating_.emplace(reporter_,
                            fmt::format("validating after update {}", grouped(e.update)));
        break;
      case TRAFO_EVENT_VALIDATED:
        validated(e, record);
        break;
      case TRAFO_EVENT_AVERAGED:
        averaged(e, record);
        break;
      case TRAFO_EVENT_GEMM_AUTOTUNED:
        reporter_.info(message);
        break;
      case TRAFO_EVENT_WARNING:
        reporter_.warn(message);
        break;
      case TRAFO_EVENT_SAVED:
        reporter_.status("");
        break;
      case TRAFO_EVENT_FINISHED:
      case TRAFO_EVENT_STOPPED:
        reporter_.status("");
        finished(e);
        break;
      default:
        break;
    }
  }

 private:
  void display(const trafo_event& e, const nlohmann::ordered_json& record) {
    std::string objective;
    for (const auto& [name, value] : objective_values_of(e))
      objective += fmt::format(" {} {:.4g}", name, value);
    std::string line = fmt::format(
        "Ep {} {:.0f}% | Up {} | loss {:.3f} ppl {:.2f}{} | gnorm {:.2f} | lr {:.2e} | {} trg "
        "tok/s | mem {:.2f}{} GB",
        e.epoch, std::floor(100 * e.epoch_fraction), grouped(e.update), e.loss, std::exp(e.nll),
        objective, e.grad_norm, e.learning_rate, grouped(std::llround(e.target_tokens_per_second)),
        gigabytes(e.memory_bytes), of_device_);
    const std::string time = e.eta_seconds >= 0 ? "ETA " + clock_text(e.eta_seconds)
                                                : "time " + clock_text(e.elapsed_seconds);
    line += " | " + time;
    // A terminal has 80 columns.
    std::string live = fmt::format("Ep {} {:.0f}%  Up {}  loss {:.3f}  {} tok/s  {}", e.epoch,
                                   std::floor(100 * e.epoch_fraction), grouped(e.update), e.loss,
                                   speed_text(e.target_tokens_per_second), time);
    if (!best_.empty()) {
      line += " | best " + best_;
      live += "  best " + best_.substr(0, best_.find(" @"));
    }
    reporter_.progress(line, record, live);
  }

  static std::string speed_text(double per_second) {
    if (per_second < 9999.5) return fmt::format("{:.0f}", per_second);
    return per_second < 999950 ? fmt::format("{:.1f}k", per_second / 1e3)
                               : fmt::format("{:.2f}M", per_second / 1e6);
  }

  static std::string metric_values(const trafo_event& e) {
    std::string values;
    for (const auto& [metric, value] : values_of(e))
      values += fmt::format(" | {} {:.{}f}", metric->short_name, value, metric->decimals);
    return values;
  }

  void averaged(const trafo_event& e, const nlohmann::ordered_json& record) {
    const std::string values = metric_values(e);
    reporter_.info(fmt::format("[average] of updates {}{}{} | {}", text_of(e.message), values,
                               values.empty()    ? ""
                               : e.improved != 0 ? " | better than the best checkpoint"
                                                 : " | no better than the best",
                               text_of(e.path)),
                   record);
  }

  void validated(const trafo_event& e, const nlohmann::ordered_json& record) {
    const std::string values = metric_values(e);
    // There is none while a run diverges, and before one that prunes has reached its sparsity.
    const MetricSpec* const deciding = metric_of(e.deciding_metric);
    best_ = e.best_update == 0 || deciding == nullptr
                ? std::string()
                : fmt::format("{} {:.2f} @{}", deciding->short_name, e.best_metric,
                              grouped(e.best_update));
    const std::string message(text_of(e.message));
    const std::string verdict = e.improved         ? "new best"
                                : !message.empty() ? message
                                : best_.empty()
                                    ? "no best yet"
                                    : fmt::format("best {}, no better for {}", best_, e.stalled);
    reporter_.info(
        fmt::format("[valid] Ep {} | Up {}{} | {}", e.epoch, grouped(e.update), values, verdict),
        record);
  }

  void finished(const trafo_event& e) {
    const char* why = e.stop == TRAFO_STOP_LIMIT       ? "limit reached"
                      : e.stop == TRAFO_STOP_EARLY     ? "no more improvement"
                      : e.stop == TRAFO_STOP_CANCELLED ? "interrupted, everything is saved"
                                                       : "stopped";
    // Validation takes additional memory beside the training's.
    reporter_.info(fmt::format(
        "{} after update {}, epoch {}, {} target tokens, {}, memory {} (peak with validation {})",
        why, grouped(e.update), e.epoch, grouped(e.target_tokens), clock_text(e.elapsed_seconds),
        mebibytes(e.memory_bytes), mebibytes(e.peak_memory_bytes)));
  }

  const std::string of_device_;
  RunRecords& records_;
  Reporter& reporter_;
  std::optional<Reporter::Phase> validating_;
  std::string best_;
};

struct Session {
  RunDisplay display;
  std::string problem;  // what a callback threw: it may not pass through C
};

int32_t on_event(void* user_data, const trafo_event* event) {
  // Before and after the updates that are profiled: nothing has stopped.
  if (event->kind == TRAFO_EVENT_STOPPED && event->stop == TRAFO_STOP_PAUSED) return 0;
  auto& session = *static_cast<Session*>(user_data);
  try {
    session.display.show(*event);
    return 0;
  } catch (const std::exception& error) {
    session.problem = error.what();
    return 1;
  }
}

}  // namespace

int64_t pair_count(const Corpus& corpus) {
  trafo_corpus_info info{};
  check(trafo_corpus_get_info(corpus.get(), &info));
  return info.pairs;
}

Corpora hold_out(Corpus all, Reporter& reporter) {
  const int64_t count = pair_count(all);
  if (count < kFewestPairs)
    usage_error(fmt::format("{} pairs are too few to hold some out: give --valid-sets", count));
  const int64_t wanted =
      std::min(kMostHeldOut, std::max(count / 100, std::min(kEnoughToJudge, count / 10)));
  if (wanted < kEnoughToJudge)
    reporter.warn(
        fmt::format("only {} pairs decide which checkpoint is the best: --valid-sets with {} or "
                    "more says more",
                    wanted, kEnoughToJudge));
  trafo_corpus *rest = nullptr, *held = nullptr;
  check(trafo_corpus_hold_out(all.get(), wanted, &rest, &held));
  return {Corpus(rest), Corpus(held)};
}

Tokenizer train_vocabulary(const Corpus& corpus, const Settings& settings, bool soft_limit,
                           Reporter& reporter) {
  auto options = with_defaults<trafo_tokenizer_options>(trafo_tokenizer_options_init);
  const std::string& kind = settings.program.vocab_kind;
  if (!kind.empty()) options.kind = view(kind);
  options.vocabulary = settings.program.dim_vocabs;
  options.soft_limit = soft_limit;
  const Reporter::Phase phase(reporter, "training the vocabulary");
  Tokenizer tokenizer;
  try {
    tokenizer = make<Tokenizer>(trafo_corpus_train_tokenizer, corpus.get(), &options, nullptr);
  } catch (const CliError& error) {
    if (soft_limit || !kind.empty() || error.trafo_code() != TRAFO_INVALID_ARGUMENT) throw;
    throw error.within("", " (--dim-vocabs; without it the text decides how many there are)");
  }
  int64_t got = 0;
  check(trafo_tokenizer_get_vocabulary(tokenizer.get(), &got));
  reporter.info(kind.empty() ? fmt::format("vocabulary: {} subwords trained in {:.1f} s",
                                           grouped(got), phase.seconds())
                             : fmt::format("vocabulary: {}, {} subwords, in {:.1f} s", kind,
                                           grouped(got), phase.seconds()));
  return tokenizer;
}

int run_trainer(trafo_trainer* trainer, RunRecords& records, Reporter& reporter,
                const ProfileRequest& profile) {
  const auto cancel = make<Cancel>(trafo_cancel_new);
  trafo_memory_plan plan{};
  check(trafo_trainer_get_plan(trainer, &plan, sizeof plan));
  Session session{RunDisplay(plan.device_bytes, records, reporter), {}};
  int exit_code = kDone;
  const SignalCancel signals(cancel.get());
  const auto run_for = [&](int64_t updates) {
    int32_t stop = TRAFO_STOP_NONE;
    check(trafo_trainer_run(trainer, updates, cancel.get(), on_event, &session, &stop));
    return stop;
  };
  try {
    if (profile.path.empty())
      run_for(0);
    else if (!run_profiled(profile, run_for, reporter))
      exit_code = kFailed;
  } catch (const CliError& error) {
    if (error.trafo_code() != TRAFO_CANCELLED) {
      records.fail(error.trafo_code() == TRAFO_NON_FINITE);
      if (session.problem.empty()) throw;
    }
    exit_code = signals.exit_code();
  }
  // Also of the last events, after which a run cannot be stopped.
  if (!session.problem.empty()) throw CliError(kFailed, session.problem);
  reporter.status("");
  return exit_code;
}

int run_other_rank(trafo_trainer* trainer, const ProfileRequest& profile, bool is_process) {
  const auto cancel = make<Cancel>(trafo_cancel_new);
  std::optional<SignalCancel> signals;
  if (is_process) signals.emplace(cancel.get());
  int32_t why = TRAFO_STOP_NONE;
  const auto remember = [](void* user_data, const trafo_event* event) -> int32_t {
    if (event->kind == TRAFO_EVENT_STOPPED) *static_cast<int32_t*>(user_data) = event->stop;
    return 0;
  };
  const auto run_for = [&](int64_t updates) {
    int32_t stop = TRAFO_STOP_NONE;
    check(trafo_trainer_run(trainer, updates, cancel.get(), remember, &why, &stop));
    return stop;
  };
  try {
    run_in_step(profile, run_for);
    return kDone;
  } catch (const CliError& error) {
    if (error.trafo_code() != TRAFO_CANCELLED) throw;
    // The callback of rank 0 has failed. Rank 0 leaves the group and says why, which is the error
    // of the next call here.
    if (why == TRAFO_STOP_CALLBACK) run_for(1);
    return signals ? signals->exit_code() : kTerminated;
  }
}

}  // namespace translate_train
