/* Written by scripts/generate_options.py from schema/results.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_SPECIAL_TOKENS_H
#define TRAFO_GENERATED_SPECIAL_TOKENS_H

/* Ids of special tokens. */
typedef struct trafo_special_tokens {
  int32_t unk; /* Stands for unknown text. */
  /* The decoder of an encoder-decoder begins with it, or with the end token where there is none. Negative: the vocabulary has
   * none. */
  int32_t bos;
  int32_t eos; /* Ends a text. */
  int32_t pad; /* Padding. Negative: the vocabulary has none. */
} trafo_special_tokens;

#endif /* TRAFO_GENERATED_SPECIAL_TOKENS_H */
