/* Written by scripts/generate_options.py from schema/results.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_STEP_RESULT_H
#define TRAFO_GENERATED_STEP_RESULT_H

/* One update. */
typedef struct trafo_step_result {
  int64_t update; /* The update that was done. */
  double loss; /* Mean per label, label smoothing included. */
  double nll; /* Mean per label, without smoothing. */
  double grad_norm; /* Global gradient norm before clipping. */
  double learning_rate; /* Learning rate. */
  int64_t labels; /* Labels of the batch. */
  int32_t skipped; /* 1: the update was not finite: nothing has changed. */
  int32_t reserved; /* 0 */
} trafo_step_result;

#endif /* TRAFO_GENERATED_STEP_RESULT_H */
