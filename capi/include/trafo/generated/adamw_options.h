/* Written by scripts/generate_options.py from schema/structs.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_ADAMW_OPTIONS_H
#define TRAFO_GENERATED_ADAMW_OPTIONS_H

typedef struct trafo_adamw_options {
  size_t struct_size;
  double beta1; /* Decay of the first moment. Default 0.9. */
  double beta2; /* Decay of the second moment. Default 0.98. */
  double epsilon; /* Added to the root of the second moment. Default 1e-9. */
  double weight_decay; /* Decoupled weight decay. Default 0. */
  double clip_norm; /* Limit of the global gradient norm; 0: off. Default 0. */
} trafo_adamw_options;

/* Fills in the defaults. struct_size is the size of the caller's struct. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_adamw_options_init(trafo_adamw_options *options, size_t struct_size);

#endif /* TRAFO_GENERATED_ADAMW_OPTIONS_H */
