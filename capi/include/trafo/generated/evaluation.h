/* Written by scripts/generate_options.py from schema/results.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_EVALUATION_H
#define TRAFO_GENERATED_EVALUATION_H

/* Corpus scores with their parts. */
typedef struct trafo_evaluation {
  size_t struct_size;
  trafo_resampled_score bleu; /* Corpus BLEU. */
  trafo_resampled_score chrf; /* Corpus chrF2. */
  trafo_resampled_score baseline_bleu; /* BLEU of the baseline. NaN: there is no baseline. */
  trafo_resampled_score baseline_chrf; /* chrF2 of the baseline. NaN: there is no baseline. */
  double bleu_precisions[4]; /* BLEU's precisions of n-grams of 1 to 4 tokens, per cent, smoothed. */
  double bleu_brevity_penalty; /* BLEU's brevity penalty. */
  int64_t bleu_matches[4]; /* n-grams of the hypotheses that a reference has. */
  int64_t bleu_totals[4]; /* n-grams of the hypotheses. */
  int64_t hypothesis_tokens; /* Tokens of the hypotheses. */
  int64_t reference_tokens; /* Tokens of the references; with several, of the one of each line that is nearest in length. */
  /* References in scripts without spaces (Chinese, Japanese, Thai, ...), of which the tokenizers 13a, intl and none take whole
   * phrases for words: their BLEU says little then. */
  int64_t unspaced_references;
  char bleu_signature[128]; /* sacreBLEU's signature; only scores with equal signatures are comparable. */
  char chrf_signature[128]; /* The same for chrF2. */
} trafo_evaluation;

#endif /* TRAFO_GENERATED_EVALUATION_H */
