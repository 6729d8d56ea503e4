/* Translates with the model and the tokenizer that train.c has written. */
#include "guide.h"

int main(void) {
  trafo_context* context = NULL;
  trafo_model* model = NULL;
  trafo_tokenizer* tokenizer = NULL;
  must(trafo_context_new(NULL, &context));
  must(trafo_model_load(context, "model.safetensors", 17, &model));
  must(trafo_tokenizer_load("spm.model", 9, &tokenizer));
  must(trafo_model_prepare_inference(model)); /* for decoding only: packs the weights */

  const trafo_string_view lines[] = {text("eins zwei drei"), text(""), text("vier vier eins")};
  trafo_translate_options options;
  must(trafo_translate_options_init(&options, sizeof options));
  options.beam = 2;
  trafo_translations* translations = NULL;
  must(trafo_translate(model, tokenizer, lines, 3, &options, NULL, &translations));
  for (size_t i = 0; i < 3; ++i) {
    trafo_string_view translation;
    double score = 0;
    must(trafo_translations_get(translations, i, 0, &translation, &score));
    printf("%.*s -> %.*s (%.3f)\n", (int)lines[i].length, lines[i].data, (int)translation.length,
           translation.data, score);
  }
  trafo_translations_free(translations);
  trafo_tokenizer_free(tokenizer);
  trafo_model_free(model);
  trafo_context_free(context);
  return 0;
}
