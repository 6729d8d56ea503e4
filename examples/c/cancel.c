/* Another thread cancels a training that has no limit. The trainer can continue afterwards. */
#include <threads.h>

#include "guide.h"

static int cancel_soon(void* cancel) {
  const struct timespec moment = {0, 200000000};
  thrd_sleep(&moment, NULL);
  must(trafo_cancel_set(cancel));
  return 0;
}

int main(void) {
  trafo_context* context = NULL;
  trafo_model* model = NULL;
  trafo_tokenizer* tokenizer = NULL;
  trafo_corpus* corpus = NULL;
  trafo_trainer* trainer = NULL;
  trafo_cancel* cancel = NULL;
  const trafo_string_view source[] = {text("eins zwei"), text("drei vier")},
                          target[] = {text("one two"), text("three four")};
  must(trafo_context_new(NULL, &context));
  must(trafo_model_load(context, "model.safetensors", 17, &model));
  must(trafo_tokenizer_load("spm.model", 9, &tokenizer));
  must(trafo_corpus_new(source, target, 2, &corpus));
  must(trafo_trainer_new(model, tokenizer, corpus, NULL, NULL, NULL, 0, NULL,
                         &trainer)); /* no limit: it would run forever */
  must(trafo_cancel_new(&cancel));

  thrd_t thread;
  if (thrd_create(&thread, cancel_soon, cancel) != thrd_success) return 1;
  int32_t stop = 0;
  trafo_error* error = trafo_trainer_run(trainer, 0, cancel, NULL, NULL, &stop);
  thrd_join(thread, NULL);
  if (trafo_error_code(error) != TRAFO_CANCELLED) return 1;
  printf("%s\n", trafo_error_message(error));
  trafo_error_free(error);

  must(trafo_trainer_run(trainer, 1, NULL, NULL, NULL, &stop)); /* one more update */
  trafo_cancel_free(cancel);
  trafo_trainer_free(trainer);
  trafo_corpus_free(corpus);
  trafo_tokenizer_free(tokenizer);
  trafo_model_free(model);
  trafo_context_free(context);
  return stop == TRAFO_STOP_PAUSED ? 0 : 1;
}
