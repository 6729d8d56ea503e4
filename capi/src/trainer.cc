#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "capi/src/text_handles.h"
#include "capi/src/trainer_handles.h"
#include "engine/train/memory_plan.h"

using namespace trafo;
using namespace trafo::capi;

namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

struct MetricName {
  int32_t bit;
  const char* name;
};
constexpr MetricName kMetrics[] = {
    {TRAFO_METRIC_BLEU, "bleu"}, {TRAFO_METRIC_CHRF, "chrf"}, {TRAFO_METRIC_CE, "ce-mean-words"}};
constexpr int32_t kAllMetrics = TRAFO_METRIC_BLEU | TRAFO_METRIC_CHRF | TRAFO_METRIC_CE;

trafo_trainer_options trainer_defaults() {
  trafo_trainer_options o{};
  o.struct_size = sizeof o;
  o.seed = 1;
  o.learning_rate = 2e-3;
  o.warmup = 1000;
  o.schedule = TRAFO_SCHEDULE_INVERSE_SQRT;
  o.gradient_accumulation = 1;
  o.label_smoothing = 0.1;
  o.clip_norm = 1;
  o.beta1 = 0.9;
  o.beta2 = 0.98;
  o.epsilon = 1e-9;
  o.batch_tokens = 4096;
  o.max_length = 256;
  o.valid_freq = {1000, TRAFO_UNIT_UPDATES, 0};
  o.save_freq = {1000, TRAFO_UNIT_UPDATES, 0};
  o.log_freq = {100, TRAFO_UNIT_UPDATES, 0};
  o.valid_metrics = kAllMetrics;
  o.first_metric = TRAFO_METRIC_BLEU;
  o.valid_beam = 1;
  o.valid_normalize = 1;
  o.keep_last = 3;
  o.keep_best = 1;
  o.max_non_finite_steps = 10;
  return o;
}

Period to_period(const Call& call, const trafo_period& period, const char* name) {
  call.reserved(period.reserved);
  if (period.unit < TRAFO_UNIT_UPDATES || period.unit > TRAFO_UNIT_EPOCHS)
    call.refuse(name, " has the unknown unit ", period.unit);
  if (period.value < 0) call.refuse(name, " must be at least 0, got ", period.value);
  return {period.value, static_cast<PeriodUnit>(period.unit)};
}

TrainOptions to_options(const Call& call, const trafo_trainer_options& o) {
  if (o.schedule < TRAFO_SCHEDULE_CONSTANT || o.schedule > TRAFO_SCHEDULE_NOAM)
    call.refuse("unknown schedule ", o.schedule);
  if ((o.valid_metrics & ~kAllMetrics) != 0)
    call.refuse("valid_metrics has unknown bits: ", o.valid_metrics);
  if (o.recompute < TRAFO_RECOMPUTE_NONE || o.recompute > TRAFO_RECOMPUTE_FULL)
    call.refuse("recompute must be TRAFO_RECOMPUTE_NONE (0), _SELECTIVE (1) or _FULL (2), got ",
                o.recompute);
  if (o.optimizer_states < TRAFO_OPTIMIZER_STATES_FLOAT32 ||
      o.optimizer_states > TRAFO_OPTIMIZER_STATES_8BIT)
    call.refuse("optimizer_states must be TRAFO_OPTIMIZER_STATES_FLOAT32 (0) or _8BIT (1), got ",
                o.optimizer_states);
  if (o.early_stopping_on < TRAFO_STOPPING_FIRST || o.early_stopping_on > TRAFO_STOPPING_ALL)
    call.refuse("early_stopping_on must be TRAFO_STOPPING_FIRST (0), _ANY (1) or _ALL (2), got ",
                o.early_stopping_on);
  call.reserved(o.reserved);
  TrainOptions t;
  t.max_length_ratio = o.max_length_ratio;
  t.drop_identical = call.flag(o.drop_identical, "drop_identical");
  t.maxi_batch = o.maxi_batch;
  t.source_alpha = o.source_alpha;
  t.target_alpha = o.target_alpha;
  t.autotune_gemm = call.flag(o.autotune_gemm, "autotune_gemm");
  t.ema_alpha = o.ema_alpha;
  t.early_stopping_on = static_cast<StoppingMetrics>(o.early_stopping_on);
  t.average_last = o.average_last;
  t.optimizer_states = static_cast<OptimizerStates>(o.optimizer_states);
  t.memory_limit = o.memory_limit;
  t.batch_fit = call.flag(o.batch_fit, "batch_fit");
  t.recompute = static_cast<Recompute>(o.recompute);
  t.learn_rate = o.learning_rate;
  t.schedule = static_cast<ScheduleKind>(o.schedule);
  t.warmup = o.warmup;
  t.schedule_updates = o.schedule_updates;
  t.label_smoothing = o.label_smoothing;
  t.clip_norm = o.clip_norm;
  t.weight_decay = o.weight_decay;
  t.beta1 = o.beta1;
  t.beta2 = o.beta2;
  t.epsilon = o.epsilon;
  t.gradient_accumulation = o.gradient_accumulation;
  t.seed = o.seed;
  t.max_non_finite_steps = o.max_non_finite_steps;
  t.batch_tokens = o.batch_tokens;
  t.max_length = o.max_length;
  t.after_updates = o.after_updates;
  t.after_epochs = o.after_epochs;
  t.after_tokens = o.after_tokens;
  t.early_stopping = o.early_stopping;
  t.log_freq = to_period(call, o.log_freq, "log_freq");
  t.log_first = o.log_first;
  t.valid_freq = to_period(call, o.valid_freq, "valid_freq");
  t.save_freq = to_period(call, o.save_freq, "save_freq");
  t.valid_beam = o.valid_beam;
  t.valid_normalize = o.valid_normalize;
  t.keep_best = call.flag(o.keep_best, "keep_best");
  t.keep_last = o.keep_last;
  // The engine decides by the first of the list.
  t.valid_metrics.clear();
  for (const bool first : {true, false})
    for (const MetricName& metric : kMetrics)
      if ((o.valid_metrics & metric.bit) != 0 && (o.first_metric == metric.bit) == first)
        t.valid_metrics.emplace_back(metric.name);
  if (o.valid_metrics != 0 && ((o.first_metric & o.valid_metrics) != o.first_metric ||
                               (o.first_metric & (o.first_metric - 1)) != 0 || o.first_metric == 0))
    call.refuse("first_metric ", o.first_metric, " is not one of valid_metrics ", o.valid_metrics);
  return t;
}

trafo_memory_plan to_c(const MemoryPlan& plan) {
  trafo_memory_plan result{};
  result.weights_bytes = plan.weights;
  result.gradients_bytes = plan.gradients;
  result.optimizer_bytes = plan.optimizer;
  result.activations_bytes = plan.activations;
  result.total_bytes = plan.total;
  return result;
}

trafo_event to_c(const TrainEvent& event) {
  trafo_event e{};
  e.struct_size = sizeof e;
  e.kind = static_cast<int32_t>(event.kind);
  e.stop = static_cast<int32_t>(event.reason);
  e.update = event.update;
  e.epoch = event.epoch;
  e.epoch_fraction = event.epoch_fraction;
  e.loss = event.loss;
  e.nll = event.nll;
  e.grad_norm = event.grad_norm;
  e.learning_rate = event.learning_rate;
  e.target_tokens = event.target_tokens;
  e.source_tokens = event.source_tokens;
  e.target_tokens_per_second = event.target_tokens_per_second;
  e.source_tokens_per_second = event.source_tokens_per_second;
  e.elapsed_seconds = event.elapsed_seconds;
  e.eta_seconds = event.eta_seconds;
  e.memory_bytes = event.memory_bytes;
  e.peak_memory_bytes = event.peak_memory_bytes;
  e.skipped_updates = event.skipped_updates;
  e.stalled = event.stalled;
  e.valid_ce = e.valid_bleu = e.valid_chrf = e.best_metric = kUnknown;
  for (const MetricValue& metric : event.metrics) {
    if (metric.name == "bleu") e.valid_bleu = metric.value;
    if (metric.name == "chrf") e.valid_chrf = metric.value;
    if (metric.name == "ce-mean-words") e.valid_ce = metric.value;
  }
  if (!event.metrics.empty()) {
    e.best_metric = event.metrics[0].best;
    e.best_update = event.metrics[0].best_update;
    e.improved = event.metrics[0].improved;
  }
  e.message = {event.message.data(), event.message.size()};
  e.path = {event.path.data(), event.path.size()};
  return e;
}

}  // namespace

trafo_error* trafo_trainer_options_init(trafo_trainer_options* options, size_t struct_size) {
  return api(__func__, [&](const Call& call) {
    init_options(call, options, struct_size, trainer_defaults());
  });
}

trafo_error* trafo_plan_training(const trafo_model_config* config,
                                 const trafo_trainer_options* options, int64_t sentences,
                                 int64_t source_tokens, int64_t target_tokens,
                                 trafo_memory_plan* out, size_t struct_size) {
  return api(__func__, [&](const Call& call) {
    call.out_struct(out, struct_size);
    const WantedModel wanted = wanted_model(call, config);
    const TrainOptions training = to_options(call, read_options(call, options, trainer_defaults()));
    BatchSizes sizes{sentences, source_tokens, target_tokens};
    if (training.batch_fit)
      sizes =
          largest_batch({DeviceKind::cuda, 0}, wanted.config, wanted.precision, training, sizes);
    trafo_memory_plan result = to_c(
        plan_training({DeviceKind::cuda, 0}, wanted.config, wanted.precision, training, sizes));
    result.batch_tokens = sizes.target_tokens;
    result.limit_bytes = training.memory_limit;
    init_options(call, out, struct_size, result);
  });
}

trafo_error* trafo_trainer_new(trafo_model* model, const trafo_tokenizer* tokenizer,
                               const trafo_corpus* train, const trafo_corpus* valid,
                               const trafo_trainer_options* options, const char* run_directory,
                               size_t run_directory_length, trafo_trainer** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    ModelObject& m = call.handle(model, "model");
    call.use(m.context, CallsBack::yes);
    check_changeable(call, m);
    const Tokenizer& pieces = call.handle(tokenizer, "tokenizer").tokenizer;
    const TextCorpus& training = call.handle(train, "train").corpus;
    const TextCorpus* validation = valid ? &call.handle(valid, "valid").corpus : nullptr;
    const TrainOptions settings = to_options(call, read_options(call, options, trainer_defaults()));
    validate(settings);
    std::optional<std::filesystem::path> directory;
    if (!call.text(run_directory, run_directory_length, "run_directory").empty())
      directory = path_argument(call, run_directory, run_directory_length, "run_directory");
    TrainingData data = prepare_data(training, validation, pieces, m.model->config(), settings,
                                     m.context->backend().threads());
    auto run =
        std::make_unique<TrainingRun>(*m.context, *m.model, std::move(data), settings, directory);
    *out = new_handle<trafo_trainer>(m.context, m.model, settings, std::move(run),
                                     directory.has_value());
  });
}

trafo_error* trafo_trainer_run(trafo_trainer* trainer, int64_t max_updates,
                               const trafo_cancel* cancel, trafo_event_fn callback, void* user_data,
                               int32_t* out_stop) {
  return api(__func__, [&](const Call& call) {
    call.out(out_stop, "out_stop");
    const Working t(call, trainer);
    if (max_updates < 0) call.refuse("max_updates must be at least 0, got ", max_updates);
    const std::shared_ptr<CancelToken> token =
        cancel ? call.handle(cancel, "cancel").token : nullptr;
    TrainCallback forward;
    if (callback)
      forward = [&](const TrainEvent& event) {
        const trafo_event e = to_c(event);
        return static_cast<int>(callback(user_data, &e));
      };
    const int64_t countable = std::numeric_limits<int64_t>::max() - t->run->state().trainer.update;
    const RunSummary summary = t->run->run(forward, token.get(), std::min(max_updates, countable));
    require(summary.reason != StopReason::cancelled && summary.reason != StopReason::callback,
            ErrorCode::cancelled, call.function(), "training was stopped by ",
            summary.reason == StopReason::cancelled ? "its cancel token" : "its callback",
            " after update ", summary.state.trainer.update, "; it can go on");
    *out_stop = static_cast<int32_t>(summary.reason);
  });
}

trafo_error* trafo_trainer_step(trafo_trainer* trainer, trafo_step_result* out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    const Working t(call, trainer);
    const int64_t before = t->run->state().trainer.update;
    t->run->run({}, nullptr, 1);
    const StepResult& step = t->run->last_step();
    if (t->run->state().trainer.update == before)
      call.refuse("training is done: a limit of the options was reached at update ", before);
    *out = {step.update,
            step.loss,
            step.nll,
            step.grad_norm,
            step.learning_rate,
            static_cast<int64_t>(step.labels),
            step.skipped ? 1 : 0,
            0};
  });
}

trafo_error* trafo_trainer_validate(trafo_trainer* trainer, double* out_ce, double* out_bleu,
                                    double* out_chrf) {
  return api(__func__, [&](const Call& call) {
    for (double* out : {out_ce, out_bleu, out_chrf})
      if (out) *out = 0;
    const Working t(call, trainer);
    if (!t->run->data().valid) call.refuse("the trainer has no validation corpus");
    const auto result = t->run->validate();
    for (double* out : {out_ce, out_bleu, out_chrf})
      if (out) *out = kUnknown;
    for (size_t i = 0; result && i < t->options.valid_metrics.size(); ++i) {
      const std::string& name = t->options.valid_metrics[i];
      double* out = name == "bleu" ? out_bleu : name == "chrf" ? out_chrf : out_ce;
      if (out) *out = result->values[i];
    }
  });
}

trafo_error* trafo_trainer_save(trafo_trainer* trainer) {
  return api(__func__, [&](const Call& call) {
    const Working t(call, trainer);
    if (!t->saves) call.refuse("the trainer has no run directory");
    t->run->save();
  });
}

trafo_error* trafo_trainer_get_plan(const trafo_trainer* trainer, trafo_memory_plan* out,
                                    size_t struct_size) {
  return api(__func__, [&](const Call& call) {
    call.out_struct(out, struct_size);
    const RunPlan& plan = call.handle(trainer, "trainer").run->plan();
    trafo_memory_plan result = to_c(plan.memory);
    result.batch_tokens = plan.batch_tokens;
    result.limit_bytes = plan.limit;
    if (plan.device) {
      result.device_bytes = plan.device->total;
      result.free_bytes = plan.device->free;
    }
    init_options(call, out, struct_size, result);
  });
}

void trafo_trainer_free(trafo_trainer* trainer) {
  free_handle(trainer);
}
