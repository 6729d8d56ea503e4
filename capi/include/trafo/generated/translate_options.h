/* Written by scripts/generate_options.py from schema/decoding.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_TRANSLATE_OPTIONS_H
#define TRAFO_GENERATED_TRANSLATE_OPTIONS_H

/* Whether a special token is beside a source or a prompt. */
#define TRAFO_FRAME_OFF      0 /* It is not there. */
#define TRAFO_FRAME_ON       1 /* It is there. */
#define TRAFO_FRAME_BY_MODEL 2 /* As the model was trained; of an imported decoder-lm, as its own files say. */

typedef struct trafo_translate_options {
  size_t struct_size;
  int64_t beam; /* Hypotheses kept of each sentence. 1 is greedy search. Default 5. */
  /* Hypotheses returned of each sentence, at most beam. With sampling: translations drawn of each sentence. Default 1. */
  int64_t n_best;
  /* The score of a hypothesis is log-probability / tokens^length_penalty, its end counted (Marian's --normalize). 0: no
   * normalisation. Default 1. */
  double length_penalty;
  /* Longest translation in tokens, its end counted and a given beginning not. Default 0: twice the source plus 10, at most 200.
   * */
  int64_t max_length;
  int64_t min_length; /* Tokens before a translation may end; a given beginning is not counted. Default 0. */
  int64_t batch_tokens; /* Source tokens times beam of the sentences that are decoded together. Default 4096. */
  /* The logit of each token that the translation already has is divided by it if it is positive, and multiplied otherwise
   * (Keskar et al., arXiv 1909.05858). 1: no penalty. Where a decoder-lm continues a text (no end_source), tokens of that text
   * count as well. Default 1. */
  double repetition_penalty;
  /* Subtracted from the logit of each token that was generated before, however often (OpenAI's presence_penalty). A negative
   * number makes such tokens more probable. Tokens of a prompt, a source or a given beginning do not count. Default 0. */
  double presence_penalty;
  /* Subtracted from the logit of a token for each time that it was generated before (OpenAI's frequency_penalty). Otherwise as
   * presence_penalty. Default 0. */
  double frequency_penalty;
  /* No token completes an n-gram of this many tokens that the translation already has. Where a decoder-lm continues a text (no
   * end_source), n-grams of that text count as well. Default 0: any may repeat. */
  int64_t no_repeat_ngram_size;
  /* Decoder layer whose cross-attention, the mean over its heads, is the alignment; counted from 1. Default 0: the last but
   * one. */
  int64_t alignment_layer;
  /* Tokens of a window of window_stride, from 2 to the model's limit: max_length of the training of a model that learned
   * windows. Default 0: the model's limit. */
  int64_t window_length;
  /* Of plain text that is scored under a decoder-lm: a text of more than window_length tokens is scored in windows of that many
   * tokens, each of which begins window_stride tokens after the one before, at most window_length. Each token is scored once,
   * in the first window that predicts it. Default 0: no windows, truncate holds. */
  int64_t window_stride;
  double temperature; /* Sampling: logits are divided by it. Default 1. */
  int64_t top_k; /* Sampling: only this many of the most probable tokens. Default 0: all. */
  /* Sampling: only the fewest tokens that have this share of the probability together (Holtzman et al., arXiv 1904.09751).
   * Default 1. */
  double top_p;
  /* Sampling: of the tokens that top_k and top_p leave, only those with at least this share of the probability of the most
   * probable token (transformers' MinPLogitsWarper; Nguyen et al., arXiv 2407.01082). Default 0: all. */
  double min_p;
  uint64_t seed; /* Sampling: seed of the draws. Default 1. */
  int64_t first_line; /* Sampling: number of the first line, so that a text in several calls is drawn as in one. Default 0. */
  const trafo_shortlist *shortlist; /* Only tokens of the list are chosen among. Default NULL: the whole vocabulary. */
  /* With a shortlist: this many tokens from the start of the vocabulary are chosen among as well. Default 100. */
  int64_t shortlist_first;
  /* With a shortlist: this many of the best translations of each source token are chosen among. Default 100. */
  int64_t shortlist_best;
  int32_t word_scores; /* 1: every hypothesis has the log-probability of each of its tokens. Default 0. */
  /* 1: every hypothesis has an alignment: for each of its tokens, the cross-attention to the source tokens. A decoder-lm has
   * none: UNSUPPORTED. Default 0. */
  int32_t alignment;
  /* 1: equal texts of a line are returned once, with the best score. A line then has fewer than n_best hypotheses if the search
   * or the samples have no more texts. Default 0. */
  int32_t distinct;
  int32_t truncate; /* 1: a source over the model's limit is cut. Otherwise it is INVALID_ARGUMENT. Default 1. */
  /* 1: every token is drawn instead of searching for the best; beam is not used then. The drawn tokens depend only on the
   * model's probabilities, the seed, and the numbers of the line, the sample and the token. */
  int32_t sampling;
  /* TRAFO_FRAME_*. Whether eos follows a source. Without it a decoder-lm continues the text, as base models do; a text over the
   * model's limit then loses its beginning. Default TRAFO_FRAME_BY_MODEL. */
  int32_t end_source;
  int32_t begin_source; /* TRAFO_FRAME_*. Whether bos precedes a source of a decoder-lm. Default TRAFO_FRAME_BY_MODEL. */
  int32_t reserved; /* 0 */
} trafo_translate_options;

/* Fills in the defaults. struct_size is the size of the caller's struct. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_translate_options_init(trafo_translate_options *options, size_t struct_size);

#endif /* TRAFO_GENERATED_TRANSLATE_OPTIONS_H */
