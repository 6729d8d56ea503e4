/* Written by scripts/generate_options.py from schema/results.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_GENERATION_PIECE_H
#define TRAFO_GENERATED_GENERATION_PIECE_H

/* What a token adds to a sequence that is being generated. */
typedef struct trafo_generation_piece {
  size_t struct_size;
  int64_t sequence; /* Number of the sequence; -1: no sequence is left, and the other members are zero. */
  /* Whole characters that no later token changes. It may be empty: a token can be a part of a character, or the text may become
   * a stop string. Without a tokenizer it is empty. Borrowed until the next call on the generator. */
  trafo_string_view text;
  /* The token, ids of the vocabulary; also the one that ends the sequence, which has no text. -1: none was allowed to follow.
   * */
  int32_t token;
  int32_t finished; /* 1: this is the last piece of the sequence. */
  int32_t finish; /* TRAFO_FINISH_*. Why the sequence ends; 0 until then. */
  int32_t reserved; /* 0 */
  /* With word_scores: natural log-probability that the model gives to the token, before penalties, biases, bans and
   * temperature. Otherwise NaN. */
  double log_probability;
  int64_t prompt_tokens; /* Tokens of the prompt. */
  int64_t cached_tokens; /* Of them, those whose keys and values were taken from an earlier sequence. */
  int64_t generated_tokens; /* Tokens that were generated so far, the one that ends the sequence included. */
  int64_t drafted_tokens; /* Tokens that the draft model has proposed so far. */
  int64_t accepted_tokens; /* Of them, those that were generated. */
} trafo_generation_piece;

#endif /* TRAFO_GENERATED_GENERATION_PIECE_H */
