/* Written by scripts/generate_options.py from schema/results.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_RESAMPLED_SCORE_H
#define TRAFO_GENERATED_RESAMPLED_SCORE_H

/* A corpus score, 0 to 100. */
typedef struct trafo_resampled_score {
  double score; /* Of the whole corpus. */
  double mean; /* The mean of the resamples. NaN: nothing was resampled. */
  double half_width; /* 95 % of the resamples lie in an interval of twice this width. NaN: nothing was resampled. */
  /* Paired bootstrap test (Koehn, EMNLP 2004): how probable so large a difference from the baseline would be if both were
   * equal. NaN: there is no baseline, or nothing was resampled. */
  double p_value;
} trafo_resampled_score;

#endif /* TRAFO_GENERATED_RESAMPLED_SCORE_H */
