/* Generates two answers, piece by piece, with the tokenizer of train.c. The model is not trained:
 * the text means nothing. */
#include "guide.h"

/* Prints the continuation of `ids` piece by piece, and appends its tokens to them. */
static void answer(trafo_generator* generator, int32_t* ids, size_t* count,
                   const trafo_cancel* cancel) {
  const trafo_string_view stop[] = {text("\n\n")};
  trafo_translate_options decoding;
  trafo_generation_options options;
  must(trafo_translate_options_init(&decoding, sizeof decoding));
  must(trafo_generation_options_init(&options, sizeof options));
  decoding.max_length = 12;
  decoding.sampling = 1;
  decoding.temperature = 0.8;
  decoding.top_p = 0.9;
  options.stop = stop;
  options.stop_count = 1;
  const trafo_ids_view prompt = {ids, *count};
  int64_t sequence = 0;
  must(trafo_generator_start_ids(generator, &prompt, 1, &decoding, &options, &sequence));
  trafo_generation_piece piece;
  do {
    must(trafo_generator_next(generator, cancel, &piece, sizeof piece));
    fwrite(piece.text.data, 1, piece.text.length, stdout);
    if (piece.token >= 0) ids[(*count)++] = piece.token;
  } while (!piece.finished);
  printf("\n(%d of %d prompt tokens were in the cache)\n", (int)piece.cached_tokens,
         (int)piece.prompt_tokens);
}

int main(void) {
  trafo_context* context = NULL;
  trafo_model* model = NULL;
  trafo_tokenizer* tokenizer = NULL;
  trafo_generator* generator = NULL;
  trafo_cancel* cancel = NULL;
  trafo_model_config config;
  must(trafo_context_new(NULL, &context));
  must(trafo_cancel_new(&cancel)); /* another thread may set it */
  must(trafo_tokenizer_load("spm.model", 9, &tokenizer));
  must(trafo_model_config_init(&config, sizeof config));
  must(trafo_model_config_preset(&config, "tiny", 4));
  config.architecture = TRAFO_DECODER_LM;
  must(trafo_tokenizer_get_vocabulary(tokenizer, &config.vocabulary));
  must(trafo_model_new(context, &config, 1, &model));
  must(trafo_model_prepare_inference(model));
  must(trafo_generator_new(model, tokenizer, 1, &generator)); /* keeps the cache of one sequence */

  int32_t ids[100], *prompt = NULL;
  size_t count = 0, more = 0;
  must(trafo_tokenizer_encode(tokenizer, "eins zwei drei", 14, &prompt, &more));
  for (int turn = 0; turn < 2;
       ++turn) { /* the second turn computes only its new tokens: the cache has the others */
    for (size_t i = 0; i < more; ++i) ids[count++] = prompt[i];
    answer(generator, ids, &count, cancel);
  }
  trafo_ids_free(prompt);
  trafo_generator_free(generator);
  trafo_model_free(model);
  trafo_tokenizer_free(tokenizer);
  trafo_cancel_free(cancel);
  trafo_context_free(context);
  return 0;
}
