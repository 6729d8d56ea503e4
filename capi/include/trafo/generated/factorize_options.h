/* Written by scripts/generate_options.py from schema/structs.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_FACTORIZE_OPTIONS_H
#define TRAFO_GENERATED_FACTORIZE_OPTIONS_H

/* How trafo_model_factorize makes matrices smaller: one of rank and ratio is given. */
typedef struct trafo_factorize_options {
  size_t struct_size;
  int64_t rank; /* Of all factors, at least 1; 0: ratio chooses the ranks. Default 0. */
  double ratio; /* Share of the weights of the matrices that stays, above 0 and below 1; 0: rank says. Default 0. */
  /* Patterns of names of matrices, '*' for any characters, '?' for one. None: all. Default none. */
  const trafo_string_view *layers;
  size_t layers_count;
  const trafo_tokenizer *tokenizer; /* Of the calibration pairs. Default NULL. */
  const trafo_corpus *calibration; /* Pairs that show what the layers multiply; needed. Default NULL. */
} trafo_factorize_options;

/* Fills in the defaults. struct_size is the size of the caller's struct. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_factorize_options_init(trafo_factorize_options *options, size_t struct_size);

#endif /* TRAFO_GENERATED_FACTORIZE_OPTIONS_H */
