/* Written by scripts/generate_options.py from schema/structs.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_SPARSIFY_OPTIONS_H
#define TRAFO_GENERATED_SPARSIFY_OPTIONS_H

typedef struct trafo_sparsify_options {
  size_t struct_size;
  double sparsity; /* Share of the weights of each linear layer that becomes zero, at least 0 and below 1. Default 0.5. */
  int32_t score; /* TRAFO_PRUNE_*. The score of a weight. Default TRAFO_PRUNE_MAGNITUDE. */
  int32_t pattern; /* TRAFO_SPARSITY_*. Which weights are compared with each other. Default TRAFO_SPARSITY_UNSTRUCTURED. */
  const trafo_tokenizer *tokenizer; /* Of the calibration pairs. Default NULL. */
  const trafo_corpus *calibration; /* Pairs that show what the layers multiply; TRAFO_PRUNE_WANDA needs them. Default NULL. */
} trafo_sparsify_options;

/* Fills in the defaults. struct_size is the size of the caller's struct. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_sparsify_options_init(trafo_sparsify_options *options, size_t struct_size);

#endif /* TRAFO_GENERATED_SPARSIFY_OPTIONS_H */
