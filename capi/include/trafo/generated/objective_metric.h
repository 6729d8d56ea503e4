/* Written by scripts/generate_options.py from schema/results.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_OBJECTIVE_METRIC_H
#define TRAFO_GENERATED_OBJECTIVE_METRIC_H

/* A number that the objective of a run computes beside its loss. */
typedef struct trafo_objective_metric {
  trafo_string_view name; /* Its name. Borrowed while the callback runs. */
  double value; /* Mean per unit of the objective since the last log event. */
} trafo_objective_metric;

#endif /* TRAFO_GENERATED_OBJECTIVE_METRIC_H */
