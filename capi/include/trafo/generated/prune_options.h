/* Written by scripts/generate_options.py from schema/structs.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_PRUNE_OPTIONS_H
#define TRAFO_GENERATED_PRUNE_OPTIONS_H

/* Sizes that trafo_model_prune leaves. A decoder-lm ignores the fields of the encoder. */
typedef struct trafo_prune_options {
  size_t struct_size;
  /* Share of the feed-forward columns of an encoder layer that stays, above 0 and at most 1; rounded up to a multiple of 8
   * columns. Default 1. */
  double encoder_ffn_share;
  double decoder_ffn_share; /* The same of the decoder. Default 1. */
  /* Share of the attention heads of an encoder layer that stays, above 0 and at most 1; at least one. Query heads that share
   * keys and values stay or go together. Default 1. */
  double encoder_head_share;
  double decoder_head_share; /* The same of the decoder. Default 1. */
  int64_t encoder_layers; /* Layers that stay; 0: all. Default 0. */
  int64_t decoder_layers; /* Layers that stay; 0: all. Default 0. */
} trafo_prune_options;

/* Fills in the defaults. struct_size is the size of the caller's struct. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_prune_options_init(trafo_prune_options *options, size_t struct_size);

#endif /* TRAFO_GENERATED_PRUNE_OPTIONS_H */
