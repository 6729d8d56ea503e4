/* Written by scripts/generate_options.py from schema/structs.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_QUANTIZE_OPTIONS_H
#define TRAFO_GENERATED_QUANTIZE_OPTIONS_H

typedef struct trafo_quantize_options {
  size_t struct_size;
  int32_t bits; /* 8: a scale for each row; 4: a scale for each 32 columns of a row. Default 8. */
  int32_t method; /* TRAFO_QUANTIZE_*. How weights are rounded. Default TRAFO_QUANTIZE_NEAREST. */
  /* Patterns of names as of trafo_model_freeze: matrices that stay float32. Default none. */
  const trafo_string_view *keep_float;
  size_t keep_float_count;
  const trafo_tokenizer *tokenizer; /* Of the calibration pairs. Default NULL. */
  const trafo_corpus *calibration; /* Pairs that show what the layers multiply; TRAFO_QUANTIZE_GPTQ needs them. Default NULL. */
} trafo_quantize_options;

/* Fills in the defaults. struct_size is the size of the caller's struct. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_quantize_options_init(trafo_quantize_options *options, size_t struct_size);

#endif /* TRAFO_GENERATED_QUANTIZE_OPTIONS_H */
