/* Written by scripts/generate_options.py from schema/results.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_EVENT_H
#define TRAFO_GENERATED_EVENT_H

/* A report of a training run. */
typedef struct trafo_event {
  size_t struct_size;
  int32_t kind; /* TRAFO_EVENT_*. Kind of the event. */
  int32_t stop; /* TRAFO_STOP_*. Why training ended; finished and stopped only. */
  int64_t update; /* Updates so far. */
  int64_t epoch; /* The current epoch, from 1; an epoch event has the completed one. */
  double epoch_fraction; /* Share of the current epoch that is done, 0 to 1. */
  double loss; /* Mean per label since the last log event, label smoothing included; of DPO per pair. */
  double nll; /* Negative log-likelihood per label since then, without smoothing; exp() is the perplexity. */
  double grad_norm; /* Global gradient norm. */
  double learning_rate; /* Learning rate. */
  int64_t target_tokens; /* Target tokens of the run so far. */
  int64_t source_tokens; /* Source tokens of the run so far. */
  double target_tokens_per_second; /* Speed since the last log event. */
  double source_tokens_per_second; /* Speed since the last log event. */
  double elapsed_seconds; /* Training time of the run, earlier processes included. */
  double eta_seconds; /* Time to the nearest limit. Negative: unknown. */
  int64_t memory_bytes; /* Bytes in use. */
  int64_t peak_memory_bytes; /* Most bytes in use. */
  int64_t skipped_updates; /* Updates left out because they were not finite. */
  int64_t stalled; /* Validations in a row without improvement, as early stopping counts them. */
  /* Of validated and averaged: the metrics that were asked for. Borrowed while the callback runs. */
  const trafo_metric_value *metrics;
  int64_t metric_count;
  double best_metric; /* Of validated: best value of the deciding metric so far. */
  int64_t best_update; /* Of validated: the update of the best value. */
  int32_t improved; /* Of validated and averaged: whether the deciding metric improved. */
  /* One bit TRAFO_METRIC_*. Of validated: the metric that decides: chrF or cross-entropy instead of a metric of words for
   * scripts without spaces. */
  int32_t deciding_metric;
  trafo_string_view message; /* As the kind says. Borrowed while the callback runs. */
  trafo_string_view path; /* As the kind says. Borrowed while the callback runs. */
  /* Metrics of the objective by name: means per unit of the objective since the last log event. There are none if it has none.
   * Borrowed while the callback runs. */
  const trafo_objective_metric *objective_metrics;
  int64_t objective_metric_count;
} trafo_event;

#endif /* TRAFO_GENERATED_EVENT_H */
