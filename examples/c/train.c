/* Trains a translator on made-up pairs; writes model.safetensors, spm.model and the run directory
 * run. */
#include "guide.h"

static int32_t on_event(void* user_data, const trafo_event* event) {
  (void)user_data;
  if (event->kind == TRAFO_EVENT_LOG)
    printf("update %lld: loss %.3f\n", (long long)event->update, event->loss);
  if (event->kind == TRAFO_EVENT_SAVED)
    printf("saved %.*s\n", (int)event->path.length, event->path.data);
  return 0; /* another value stops the run */
}

int main(void) {
  static const char *const german[] = {"eins", "zwei", "drei", "vier"}, *const english[] = {
                                                                            "one", "two", "three",
                                                                            "four"};
  enum { kPairs = 64 };
  char lines[2][kPairs][32];
  trafo_string_view source[kPairs], target[kPairs];
  for (int i = 0; i < kPairs; ++i) {
    snprintf(lines[0][i], sizeof lines[0][i], "%s %s %s", german[i % 4], german[i / 4 % 4],
             german[i / 16]);
    snprintf(lines[1][i], sizeof lines[1][i], "%s %s %s", english[i % 4], english[i / 4 % 4],
             english[i / 16]);
    source[i] = text(lines[0][i]);
    target[i] = text(lines[1][i]);
  }
  trafo_context* context = NULL;
  trafo_corpus* corpus = NULL;
  trafo_tokenizer* tokenizer = NULL;
  must(trafo_context_new(NULL, &context));
  must(trafo_corpus_new(source, target, kPairs, &corpus));
  trafo_tokenizer_options tokenizer_options;
  must(trafo_tokenizer_options_init(&tokenizer_options, sizeof tokenizer_options));
  tokenizer_options.vocabulary = 40;
  tokenizer_options.soft_limit = 1; /* fewer tokens are allowed: the text is small */
  must(trafo_corpus_train_tokenizer(corpus, &tokenizer_options, NULL, &tokenizer));

  trafo_model_config config;
  must(trafo_model_config_init(&config, sizeof config));
  must(trafo_model_config_preset(&config, "tiny", 4));
  must(trafo_tokenizer_get_vocabulary(tokenizer, &config.vocabulary));
  config.encoder_layers = config.decoder_layers = 1;
  config.width = 32;
  config.ffn_width = 64;
  config.heads = 2;
  config.dropout = 0;
  trafo_model* model = NULL;
  must(trafo_model_new(context, &config, 1, &model));

  trafo_trainer_options options;
  must(trafo_trainer_options_init(&options, sizeof options));
  options.learning_rate = 5e-3;
  options.warmup = 10;
  options.batch_tokens = 200;
  options.after_updates = 60;
  options.log_freq.value = 20;
  trafo_trainer* trainer = NULL;
  trafo_cancel* cancel =
      NULL; /* trafo_cancel_set, called on any thread, ends the run after the current update */
  int32_t stop = 0;
  must(trafo_cancel_new(&cancel));
  must(trafo_trainer_new(model, tokenizer, corpus, NULL, &options, "run", 3, NULL, &trainer));
  must(trafo_trainer_run(trainer, 0, cancel, on_event, NULL, &stop));
  if (stop != TRAFO_STOP_LIMIT) return 1;
  trafo_trainer_free(trainer);

  must(trafo_model_save(model, "model.safetensors", 17));
  must(trafo_tokenizer_save(tokenizer, "spm.model", 9));
  trafo_cancel_free(cancel);
  trafo_model_free(model);
  trafo_tokenizer_free(tokenizer);
  trafo_corpus_free(corpus);
  trafo_context_free(context);
  return 0;
}
