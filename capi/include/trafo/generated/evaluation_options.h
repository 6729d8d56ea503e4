/* Written by scripts/generate_options.py from schema/evaluation.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_EVALUATION_OPTIONS_H
#define TRAFO_GENERATED_EVALUATION_OPTIONS_H

/* How BLEU cuts a line into words: tokenizers of sacreBLEU, with the same numbers. */
#define TRAFO_TOKENIZE_13A       0 /* That of mteval-v13a: ASCII punctuation is set apart. For languages with spaces. */
#define TRAFO_TOKENIZE_NONE      1 /* Words are separated by white space. */
#define TRAFO_TOKENIZE_ZH        2 /* Every Chinese character is a word, the rest as in 13a. For Chinese. */
#define TRAFO_TOKENIZE_INTL      3 /* That of mteval-v14: punctuation and symbols of every script are set apart. */
#define TRAFO_TOKENIZE_CHAR      4 /* Every code point is a word. For Japanese, Thai and others without spaces. */
/* Subwords of a SentencePiece model that the user gives, usually the FLORES-200 model (spBLEU). */
#define TRAFO_TOKENIZE_FLORES200 5
#define TRAFO_TOKENIZE_JA_MECAB  6 /* Japanese words as MeCab finds them with IPADIC. Both have to be installed. */

typedef struct trafo_evaluation_options {
  size_t struct_size;
  const trafo_tokenizer *tokenizer; /* The SentencePiece model of tokenize flores200, which needs one. Default NULL. */
  /* Number of bootstrap samples. Each sample draws as many lines as the corpus has, with replacement. Default 1000. */
  int64_t resamples;
  /* Seed of the resampling. The same seed draws the same lines for every system and both scores. Default 12345. */
  uint64_t seed;
  /* TRAFO_TOKENIZE_*. How BLEU cuts lines into words. Scores are comparable only where it is the same. Default
   * TRAFO_TOKENIZE_13A. */
  int32_t tokenize;
  int32_t lowercase; /* 1: BLEU is computed without case. chrF keeps it. Default 0. */
  /* 1: lines are resampled for the mean and the 95 % interval of both scores. With a baseline they always are. Default 0. */
  int32_t confidence;
  int32_t reserved; /* 0 */
} trafo_evaluation_options;

/* Fills in the defaults. struct_size is the size of the caller's struct. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_evaluation_options_init(trafo_evaluation_options *options, size_t struct_size);

#endif /* TRAFO_GENERATED_EVALUATION_OPTIONS_H */
