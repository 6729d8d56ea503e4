/* Written by scripts/generate_options.py from schema/structs.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_TOKENIZER_OPTIONS_H
#define TRAFO_GENERATED_TOKENIZER_OPTIONS_H

typedef struct trafo_tokenizer_options {
  size_t struct_size;
  int64_t vocabulary; /* Tokens: special, byte and learned ones. Default 8000. */
  double character_coverage; /* Share of the characters that become tokens, 0.98 to 1. Default 1. */
  int32_t bpe; /* 1: it learns by byte-pair encoding; otherwise it learns a unigram model. Default 0. */
  int32_t byte_fallback; /* 1: unknown characters are spelled in byte tokens; otherwise they become <unk>. Default 0. */
  int32_t soft_limit; /* 1: the vocabulary may be smaller if the text has too few subwords. Default 0. */
  int32_t normalization; /* TRAFO_NORMALIZATION_*. The normal form of text. Default TRAFO_NORMALIZATION_NMT_NFKC. */
  /* Texts without white space that are one token each, wherever they are, and not normalised. Default none. */
  const trafo_string_view *user_symbols;
  size_t user_symbol_count;
  /* A kind by its name, such as "sentencepiece". docs/guide/vocabularies.md lists the kinds and the fields that each takes; the
   * other fields keep their defaults. Default sentencepiece. */
  trafo_string_view kind;
} trafo_tokenizer_options;

/* Fills in the defaults. struct_size is the size of the caller's struct. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_tokenizer_options_init(trafo_tokenizer_options *options, size_t struct_size);

#endif /* TRAFO_GENERATED_TOKENIZER_OPTIONS_H */
