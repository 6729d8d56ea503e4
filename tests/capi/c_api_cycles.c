// Create, train a step, translate, free: 1,000 times, and memory is where it was after the first
// hundred.
#define _XOPEN_SOURCE 700
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tiny_config.h"
#include "trafo.h"

static void must(trafo_error* error) {
  if (!error) return;
  printf("failed: %s [%s]\n", trafo_error_message(error), trafo_error_origin(error));
  exit(1);
}

// The slowest part, training a tokenizer, is in every tenth.
static void cycle(int number) {
  static const trafo_string_view words[] = {
      {"alpha beta gamma", 16}, {"beta gamma delta", 16}, {"gamma alpha", 11}};
  trafo_context_options one;
  trafo_context* context = NULL;
  trafo_corpus* corpus = NULL;
  static trafo_tokenizer* tokenizer = NULL;
  trafo_model* model = NULL;
  trafo_trainer* trainer = NULL;
  trafo_translations* translations = NULL;
  trafo_tokenizer_options tokenizer_options;
  trafo_model_config config;
  trafo_trainer_options training;
  trafo_translate_options search;
  trafo_step_result step;
  must(trafo_context_options_init(&one, sizeof one));
  one.threads = 1;
  must(trafo_context_new(&one, &context));
  must(trafo_corpus_new(words, words, 3, &corpus));
  must(trafo_tokenizer_options_init(&tokenizer_options, sizeof tokenizer_options));
  tokenizer_options.vocabulary = 30;
  tokenizer_options.soft_limit = 1;
  if (!tokenizer) must(trafo_corpus_train_tokenizer(corpus, &tokenizer_options, NULL, &tokenizer));
  must(tiny_config(&config));
  must(trafo_tokenizer_get_vocabulary(tokenizer, &config.vocabulary));
  must(trafo_model_new(context, &config, 1, &model));
  must(trafo_trainer_options_init(&training, sizeof training));
  training.max_length = 16;
  must(trafo_trainer_new(model, tokenizer, corpus, NULL, &training, NULL, 0, NULL, &trainer));
  must(trafo_trainer_step(trainer, NULL, &step));
  must(trafo_translate_options_init(&search, sizeof search));
  search.beam = 2;
  search.max_length = 4;
  must(trafo_translate(model, tokenizer, words, 2, &search, NULL, &translations));
  trafo_error_free(trafo_op_exp(context, NULL, NULL));  // errors are objects too
  trafo_translations_free(translations);
  trafo_trainer_free(trainer);
  trafo_model_free(model);
  if (number % 10 == 1) {
    trafo_tokenizer_free(tokenizer);
    tokenizer = NULL;
  }
  trafo_corpus_free(corpus);
  trafo_context_free(context);
}

static long resident_bytes(void) {
  long size = 0, pages = 0;
  FILE* file = fopen("/proc/self/statm", "r");
  if (!file || fscanf(file, "%ld %ld", &size, &pages) != 2) exit(1);
  fclose(file);
  return pages * sysconf(_SC_PAGESIZE);
}

// Arguments: cycles to warm up, cycles, most bytes that may have been added (0: any, a leak checker
// looks).
int main(int argc, char** argv) {
  if (argc != 4) return 2;
  for (int i = atoi(argv[1]); i > 0; --i) cycle(i);
  const long before = resident_bytes(), most = atol(argv[3]);
  for (int i = atoi(argv[2]); i > 0; --i) cycle(i);
  const long grown = resident_bytes() - before;
  printf("%s cycles: %ld bytes more than after %s\n", argv[2], grown, argv[1]);
  return most > 0 && grown > most;
}
