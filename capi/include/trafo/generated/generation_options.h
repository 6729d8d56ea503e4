/* Written by scripts/generate_options.py from schema/structs.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_GENERATION_OPTIONS_H
#define TRAFO_GENERATED_GENERATION_OPTIONS_H

/* Options of a generation that a translation does not have. */
typedef struct trafo_generation_options {
  size_t struct_size;
  /* Texts that end a sequence, also where tokens divide them. The sequence's text ends before the one that is complete first.
   * None may be empty. Default none. */
  const trafo_string_view *stop;
  size_t stop_count;
  const int32_t *stop_tokens; /* Tokens that end a sequence, beside the model's own. Default none. */
  size_t stop_token_count;
  const int32_t *banned_tokens; /* Tokens that are never generated. A stop token may not be among them. Default none. */
  size_t banned_token_count;
  /* Numbers that are added to the logits of tokens, each token once (OpenAI's logit_bias, which is -100 to 100). Default none.
   * */
  const trafo_token_bias *logit_bias;
  size_t logit_bias_count;
  /* A JSON Schema in UTF-8: only texts of JSON values that it allows are generated, and then an end. The schema true allows
   * every value. docs/guide/generating.md lists the keys that a schema may have; another one is INVALID_ARGUMENT, naming its
   * path. Empty: any text. Default empty. */
  trafo_string_view json_schema;
  /* Most probable tokens of each step that trafo_generator_get_alternatives gives (OpenAI's top_logprobs); 0 to 1024. Default
   * 0. */
  int64_t alternatives;
  /* Tokens that the draft model (trafo_generator_load_draft) proposes in a step, at most; 0 to 64. 0: it proposes none. Default
   * 0. */
  int64_t draft_tokens;
} trafo_generation_options;

/* Fills in the defaults. struct_size is the size of the caller's struct. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_generation_options_init(trafo_generation_options *options, size_t struct_size);

#endif /* TRAFO_GENERATED_GENERATION_OPTIONS_H */
