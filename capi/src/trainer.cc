#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "capi/src/generated/results.h"
#include "capi/src/option_types.h"
#include "capi/src/options.h"
#include "capi/src/text_handles.h"
#include "capi/src/trainer_handles.h"
#include "engine/models/model_io.h"
#include "engine/optim/schedule.h"
#include "engine/train/checkpoint/run_models.h"
#include "engine/train/plan/memory_plan.h"

using namespace trafo;
using namespace trafo::capi;

namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

std::vector<trafo_metric_value> metrics_to_c(const std::vector<MetricValue>& metrics) {
  std::vector<trafo_metric_value> values;
  for (const MetricValue& metric : metrics)
    values.push_back({metric.value, metric_bits({metric.name}), 0});
  return values;
}

std::vector<trafo_objective_metric> objective_metrics(const TrainEvent& event) {
  std::vector<trafo_objective_metric> values;
  for (const auto& [name, value] : event.objective_metrics)
    values.push_back({{name.data(), name.size()}, value});
  return values;
}

// The event borrows its arguments.
trafo_event event_to_c(const TrainEvent& event, const std::vector<trafo_metric_value>& metrics,
                       const std::vector<trafo_objective_metric>& of_objective) {
  trafo_event e = to_c(event);
  e.metrics = metrics.data();
  e.metric_count = static_cast<int64_t>(metrics.size());
  e.best_metric = kUnknown;
  for (const MetricValue& metric : event.metrics) {
    if (!metric.decides) continue;
    e.best_metric = metric.best;
    e.best_update = metric.best_update;
    e.improved = metric.improved;
    e.deciding_metric = capi::metric_bits({metric.name});
  }
  e.objective_metrics = of_objective.data();
  e.objective_metric_count = static_cast<int64_t>(of_objective.size());
  return e;
}

struct PlanArguments {
  const trafo_model_config* config;
  const trafo_trainer_options* options;
  const trafo_string_view* frozen;
  size_t frozen_count;
  BatchSizes sizes;
  const ModelConfig* teacher = nullptr;
  const AdapterConfig* adapter = nullptr;
};

trafo_memory_plan plan_of_rank(const Call& call, const PlanArguments& arguments,
                               const TrainingGroup& group) {
  const WantedModel wanted = wanted_model(call, arguments.config);
  TrainOptions training = from_c(call, read_options(call, arguments.options));
  if (training.lanes == 1) training.lanes = group.size;
  const Device device{DeviceKind::cuda, 0};
  const std::vector<std::string> patterns =
      lines_argument(call, arguments.frozen, arguments.frozen_count, "frozen");
  const PlannedGroups groups{
      .frozen = patterns, .teacher = arguments.teacher, .adapter = arguments.adapter};
  BatchSizes sizes = arguments.sizes;
  if (training.batch_fit)
    sizes = largest_batch(device, wanted.config, wanted.precision, training, sizes, groups, group);
  trafo_memory_plan result =
      to_c(plan_training(device, wanted.config, wanted.precision, training, sizes, groups, group));
  result.batch_tokens = sizes.target_tokens;
  result.limit_bytes = training.memory_limit;
  return result;
}

// As a group over NCCL finds it when it joins.
TrainingGroup planned_group(const Call& call, int32_t rank, int32_t size, int32_t hosts) {
  require_rank(rank, size);
  if (hosts < 1 || size % hosts != 0)
    call.refuse_argument("hosts", " must be at least 1 and divide the ", size, " ranks, got ",
                         hosts);
  return hosts == 1 ? TrainingGroup(rank, size) : TrainingGroup(rank, size, true, size / hosts);
}

// A rank that left a call because its progress function asked for it would leave the others
// waiting.
Tells tells_of(const TrainerObject& trainer) {
  return trainer.group ? Tells::no : Tells::yes;
}

}  // namespace

trafo_error* trafo_trainer_options_preset(trafo_trainer_options* options, const char* name,
                                          size_t name_length) {
  return api(__func__, [&](const Call& call) {
    const Preset& wanted = preset(call, call.text(name, name_length, "name"));
    write_preset(call, options, "options", wanted.training);
  });
}

trafo_error* trafo_plan_training(const trafo_model_config* config,
                                 const trafo_trainer_options* options,
                                 const trafo_string_view* frozen, size_t frozen_count,
                                 int64_t sentences, int64_t source_tokens, int64_t target_tokens,
                                 trafo_memory_plan* out, size_t struct_size) {
  return api(__func__, [&](const Call& call) {
    call.out_struct(out, struct_size);
    const BatchSizes sizes{sentences, source_tokens, target_tokens};
    init_options(call, out, struct_size,
                 plan_of_rank(call, {config, options, frozen, frozen_count, sizes}, {}));
  });
}

trafo_error* trafo_plan_training_of_rank(const trafo_model_config* config,
                                         const trafo_trainer_options* options,
                                         const trafo_string_view* frozen, size_t frozen_count,
                                         int32_t rank, int32_t size, int32_t hosts,
                                         int64_t sentences, int64_t source_tokens,
                                         int64_t target_tokens, trafo_memory_plan* out,
                                         size_t struct_size) {
  return api(__func__, [&](const Call& call) {
    call.out_struct(out, struct_size);
    const BatchSizes sizes{sentences, source_tokens, target_tokens};
    init_options(call, out, struct_size,
                 plan_of_rank(call, {config, options, frozen, frozen_count, sizes},
                              planned_group(call, rank, size, hosts)));
  });
}

trafo_error* trafo_plan_distillation(const trafo_model_config* config,
                                     const trafo_model_config* teacher,
                                     const trafo_trainer_options* options,
                                     const trafo_string_view* frozen, size_t frozen_count,
                                     int32_t rank, int32_t size, int32_t hosts, int64_t sentences,
                                     int64_t source_tokens, int64_t target_tokens,
                                     trafo_memory_plan* out, size_t struct_size) {
  return api(__func__, [&](const Call& call) {
    call.out_struct(out, struct_size);
    if (!teacher) call.refuse_argument("teacher", " is NULL");
    const ModelConfig of_teacher = wanted_model(call, teacher).config;
    const BatchSizes sizes{sentences, source_tokens, target_tokens};
    init_options(call, out, struct_size,
                 plan_of_rank(call, {config, options, frozen, frozen_count, sizes, &of_teacher},
                              planned_group(call, rank, size, hosts)));
  });
}

trafo_error* trafo_plan_adapter(const trafo_model_config* config,
                                const trafo_trainer_options* options, int64_t adapter_rank,
                                const char* targets, size_t targets_length, int32_t rank,
                                int32_t size, int32_t hosts, int64_t sentences,
                                int64_t source_tokens, int64_t target_tokens,
                                trafo_memory_plan* out, size_t struct_size) {
  return api(__func__, [&](const Call& call) {
    call.out_struct(out, struct_size);
    const AdapterConfig adapter{.rank = adapter_rank,
                                .targets = names_in(call.text(targets, targets_length, "targets"))};
    const BatchSizes sizes{sentences, source_tokens, target_tokens};
    init_options(call, out, struct_size,
                 plan_of_rank(call, {config, options, nullptr, 0, sizes, nullptr, &adapter},
                              planned_group(call, rank, size, hosts)));
  });
}

trafo_error* trafo_scheduled_rate(const trafo_trainer_options* options, int64_t width,
                                  int64_t update, double* out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    if (width < 1) call.refuse_argument("width", " must be at least 1, got ", width);
    if (update < 1) call.refuse_argument("update", " must be at least 1, got ", update);
    const TrainOptions training = from_c(call, read_options(call, options));
    validate(training);
    *out = Schedule{schedule_options(training, width)}(update);
  });
}

trafo_trainer* trafo::capi::new_trainer(const Call& call, const TrainerArguments& arguments,
                                        std::shared_ptr<Communicator> group) {
  ModelObject& m = call.handle(arguments.model, "model");
  call.use(m.context, CallsBack::yes);
  check_changeable(call, m);
  const std::optional<Tokenizer> subwords =
      optional_vocabulary_of(call, *m.model, arguments.tokenizer);
  const TextCorpus* training =
      arguments.train ? &call.handle(arguments.train, "train").corpus : nullptr;
  const TextCorpus* validation =
      arguments.valid ? &call.handle(arguments.valid, "valid").corpus : nullptr;
  const TrainOptions settings = from_c(call, read_options(call, arguments.options));
  std::optional<std::filesystem::path> directory;
  if (!call.text(arguments.run_directory, arguments.run_directory_length, "run_directory").empty())
    directory = path_argument(call, arguments.run_directory, arguments.run_directory_length,
                              "run_directory");
  for (const TextCorpus* corpus : {training, validation})
    if (!subwords && corpus != nullptr && !corpus->has_ids())
      call.refuse_argument("tokenizer", " is NULL, and a corpus has text");
  const CancelArgument token(call, arguments.cancel);
  const std::optional<VocabularyTokens> tokens = m.model->tokens();
  std::unique_ptr<TrainingRun> run;
  try {
    const PairEncoding encoding = training_encoding(*m.model, subwords, settings);
    TrainingData data = prepare_data(training, validation, encoding, m.model->spec(), settings,
                                     m.context->backend().threads(), token.get());
    data.frozen = m.frozen;
    run = std::make_unique<TrainingRun>(*m.context, *m.model, std::move(data), settings, directory,
                                        group.get());
  } catch (...) {
    m.model->set_tokens(tokens);  // the options may have changed what is around its texts
    throw;
  }
  return new_handle<trafo_trainer>(m.context, m.model, settings, std::move(group), std::move(run),
                                   std::move(directory));
}

trafo_error* trafo_trainer_new(trafo_model* model, const trafo_tokenizer* tokenizer,
                               const trafo_corpus* train, const trafo_corpus* valid,
                               const trafo_trainer_options* options, const char* run_directory,
                               size_t run_directory_length, const trafo_cancel* cancel,
                               trafo_trainer** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    *out = new_trainer(
        call,
        {model, tokenizer, train, valid, options, run_directory, run_directory_length, cancel},
        nullptr);
  });
}

trafo_error* trafo_trainer_run(trafo_trainer* trainer, int64_t max_updates,
                               const trafo_cancel* cancel, trafo_event_fn callback, void* user_data,
                               int32_t* out_stop) {
  return api(__func__, [&](const Call& call) {
    call.out(out_stop, "out_stop");
    const Working t(call, trainer);
    if (max_updates < 0)
      call.refuse_argument("max_updates", " must be at least 0, got ", max_updates);
    const CancelArgument token(call, cancel, tells_of(*t));
    TrainCallback forward;
    if (callback)
      forward = [&](const TrainEvent& event) {
        const std::vector<trafo_metric_value> metrics = metrics_to_c(event.metrics);
        const std::vector<trafo_objective_metric> of_objective = objective_metrics(event);
        const trafo_event e = event_to_c(event, metrics, of_objective);
        return static_cast<int>(call_host(callback, user_data, &e));
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

trafo_error* trafo_trainer_step(trafo_trainer* trainer, const trafo_cancel* cancel,
                                trafo_step_result* out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    const Working t(call, trainer);
    const int64_t before = t->run->state().trainer.update;
    const CancelArgument token(call, cancel, tells_of(*t));
    const RunSummary summary = t->run->run({}, token.get(), 1);
    const StepResult& step = t->run->last_step();
    const bool updated = t->run->state().trainer.update != before;
    require(updated || summary.reason != StopReason::cancelled, ErrorCode::cancelled,
            call.function(), "cancelled by the caller before update ", before + 1);
    if (!updated)
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

trafo_error* trafo_trainer_validate(trafo_trainer* trainer, const trafo_cancel* cancel,
                                    trafo_metric_value* out, int64_t capacity, int64_t* out_count) {
  return api(__func__, [&](const Call& call) {
    call.out(out_count, "out_count");
    const Working t(call, trainer);
    const std::vector<std::string>& names = t->options.valid_metrics;
    const auto count = static_cast<int64_t>(names.size());
    if (!t->run->data().valid) call.refuse("the trainer has no validation corpus");
    if (capacity < count)
      call.refuse_argument("capacity", " is ", capacity, ", and there are ", count, " metrics");
    if (!out) call.refuse_argument("out", " is NULL");
    const CancelArgument token(call, cancel, tells_of(*t));
    const auto result = t->run->validate(token.get());
    require(result.has_value(), ErrorCode::cancelled, call.function(), "cancelled by the caller");
    for (size_t i = 0; i < names.size(); ++i)
      out[i] = {result->values[i], metric_bits({names[i]}), 0};
    *out_count = count;
  });
}

trafo_error* trafo_trainer_save(trafo_trainer* trainer) {
  return api(__func__, [&](const Call& call) {
    const Working t(call, trainer);
    if (!t->directory) call.refuse("the trainer has no run directory");
    t->run->save();
  });
}

trafo_error* trafo_trainer_load_best(trafo_trainer* trainer, trafo_model** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    const Working t(call, trainer);
    if (!t->directory) call.refuse("the trainer has no run directory, where best models are kept");
    *out = new_handle<trafo_model>(
        t->context, std::shared_ptr<Model>(load_model(*t->context,
                                                      run_model_file(*t->directory, RunModel::best),
                                                      t->model->parameters().dtype())));
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
