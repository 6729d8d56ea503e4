/* Written by scripts/generate_options.py from schema/structs.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_EMBEDDING_OPTIONS_H
#define TRAFO_GENERATED_EMBEDDING_OPTIONS_H

typedef struct trafo_embedding_options {
  size_t struct_size;
  double scale; /* Multiplies the rows of the table. Default 1. */
  int64_t padding_id; /* Tokens with this id give the table no gradient. Default -1: none. */
  const trafo_tensor *positions; /* [T] int32, with position_table. Default NULL. */
  const trafo_tensor *position_table; /* [P,C]. Default NULL. */
  trafo_dropout dropout; /* On the sum. Default off. */
} trafo_embedding_options;

/* Fills in the defaults. struct_size is the size of the caller's struct. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_embedding_options_init(trafo_embedding_options *options, size_t struct_size);

#endif /* TRAFO_GENERATED_EMBEDDING_OPTIONS_H */
