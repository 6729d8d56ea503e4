// Two contexts in two threads with shared handles, a training run cancelled from another thread,
// and one model that translates for many threads.
#define _XOPEN_SOURCE 700
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "tiny_config.h"
#include "trafo.h"

typedef struct lesson {
  double loss;
  atomic_int displays;
} lesson;

static atomic_int failures;
static trafo_tokenizer* tokenizer;
static trafo_corpus* corpus;
static trafo_cancel* cancel;

static int ok(trafo_error* error) {
  if (!error) return 1;
  printf("failed: %s [%s]\n", trafo_error_message(error), trafo_error_origin(error));
  trafo_error_free(error);
  atomic_fetch_add(&failures, 1);
  return 0;
}

static int32_t on_event(void* user_data, const trafo_event* event) {
  if (event->kind == TRAFO_EVENT_LOG) atomic_fetch_add(&((lesson*)user_data)->displays, 1);
  return 0;
}

// Trains a separate model without a limit, until the token is set.
static void* train(void* argument) {
  lesson* own = argument;
  trafo_context* context = NULL;
  trafo_context_options options;
  trafo_model_config config;
  trafo_trainer_options training;
  trafo_model* model = NULL;
  trafo_trainer* trainer = NULL;
  int64_t vocabulary = 0;
  ok(trafo_context_options_init(&options, sizeof options));
  options.threads = 2;
  ok(trafo_context_new(&options, &context));
  ok(trafo_tokenizer_get_vocabulary(tokenizer, &vocabulary));
  ok(tiny_config(&config));
  config.vocabulary = vocabulary;
  ok(trafo_model_new(context, &config, 1, &model));
  ok(trafo_trainer_options_init(&training, sizeof training));
  training.log_freq.value = 3;
  training.max_length = 16;
  if (ok(trafo_trainer_new(model, tokenizer, corpus, corpus, &training, NULL, 0, NULL, &trainer))) {
    trafo_step_result step;
    ok(trafo_trainer_step(trainer, NULL, &step));
    own->loss = step.loss;
    int32_t stop = 0;
    trafo_error* error = trafo_trainer_run(trainer, 0, cancel, on_event, own, &stop);
    if (trafo_error_code(error) != TRAFO_CANCELLED) atomic_fetch_add(&failures, 1);
    trafo_error_free(error);
    if (ok(trafo_trainer_step(trainer, NULL, &step)) && step.update < 3)
      atomic_fetch_add(&failures, 1);
  } else {
    atomic_fetch_add(&own->displays, 2);
  }
  trafo_trainer_free(trainer);
  trafo_model_free(model);
  trafo_context_free(context);
  return NULL;
}

enum { kThreads = 6, kRounds = 5, kTexts = 3 };

static trafo_model* shared;
static const trafo_string_view kLines[kTexts] = {
    {"alpha beta gamma", 16}, {"beta gamma delta", 16}, {"gamma alpha", 11}};
static char alone[kTexts][256];
static double scores[kTexts];
static atomic_int refused;

static int translate_one(int line, char* text, size_t capacity, double* score) {
  trafo_translate_options options;
  trafo_translations* translations = NULL;
  trafo_string_view best;
  ok(trafo_translate_options_init(&options, sizeof options));
  options.beam = 2;
  trafo_error* error =
      trafo_translate(shared, tokenizer, &kLines[line], 1, &options, NULL, &translations);
  if (error) {
    atomic_fetch_add(&refused, trafo_error_code(error) == TRAFO_INVALID_ARGUMENT);
    trafo_error_free(error);
    return 0;
  }
  ok(trafo_translations_get(translations, 0, 0, &best, score));
  snprintf(text, capacity, "%.*s", (int)best.length, best.data);
  trafo_translations_free(translations);
  return 1;
}

static void* translate_all(void* unused) {
  (void)unused;
  for (int i = 0; i < kRounds * kTexts; ++i) {
    const int line = i % kTexts;
    char text[256];
    double score = 0;
    if (!translate_one(line, text, sizeof text, &score) || strcmp(text, alone[line]) != 0 ||
        score != scores[line])
      atomic_fetch_add(&failures, 1);
  }
  return NULL;
}

// While a trainer runs on this thread, another one is told so at once.
static int32_t ask_elsewhere(void* user_data, const trafo_event* event) {
  (void)user_data, (void)event;
  pthread_t thread;
  pthread_create(&thread, NULL, translate_all, NULL);
  pthread_join(thread, NULL);
  return 1;
}

// Every answer equals the answer of a lone call.
static void test_one_model_for_many_threads(int prepared) {
  trafo_context* context = NULL;
  trafo_context_options options;
  trafo_model_config config;
  ok(trafo_context_options_init(&options, sizeof options));
  options.threads = 2;
  ok(trafo_context_new(&options, &context));
  ok(tiny_config(&config));
  ok(trafo_tokenizer_get_vocabulary(tokenizer, &config.vocabulary));
  ok(trafo_model_new(context, &config, 1, &shared));
  if (!prepared) {  // something is learnt first, and asked for meanwhile
    trafo_trainer_options training;
    trafo_trainer* trainer = NULL;
    int32_t stop = 0;
    ok(trafo_trainer_options_init(&training, sizeof training));
    training.max_length = 16;
    training.log_freq.value = 1;
    ok(trafo_trainer_new(shared, tokenizer, corpus, NULL, &training, NULL, 0, NULL, &trainer));
    const int before = atomic_load(&failures);
    trafo_error_free(trafo_trainer_run(trainer, 3, NULL, ask_elsewhere, NULL, &stop));
    atomic_store(&failures, before + (atomic_load(&refused) == 0 ||
                                      atomic_load(&refused) % (kRounds * kTexts) != 0));
    trafo_trainer_free(trainer);
  } else {
    ok(trafo_model_prepare_inference(shared));
  }
  for (int i = 0; i < kTexts; ++i)
    if (!translate_one(i, alone[i], sizeof alone[i], &scores[i])) atomic_fetch_add(&failures, 1);
  pthread_t threads[kThreads];
  for (int i = 0; i < kThreads; ++i) pthread_create(&threads[i], NULL, translate_all, NULL);
  for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
  trafo_model_free(shared);
  trafo_context_free(context);
}

int main(void) {
  const trafo_string_view words[] = {
      {"alpha beta gamma", 16}, {"beta gamma delta", 16}, {"gamma alpha", 11}};
  trafo_tokenizer_options options;
  ok(trafo_tokenizer_options_init(&options, sizeof options));
  options.vocabulary = 30;
  options.soft_limit = 1;
  ok(trafo_corpus_new(words, words, 3, &corpus));
  ok(trafo_tokenizer_train(words, 3, &options, NULL, &tokenizer));
  ok(trafo_cancel_new(&cancel));
  pthread_t threads[2];
  static lesson lessons[2];
  lessons[1].loss = -1;
  for (int i = 0; i < 2; ++i) pthread_create(&threads[i], NULL, train, &lessons[i]);
  while (atomic_load(&lessons[0].displays) < 2 || atomic_load(&lessons[1].displays) < 2) {
    trafo_error* error = NULL;  // a const handle, used by three threads at once
    int32_t* ids = NULL;
    size_t count = 0;
    error = trafo_tokenizer_encode(tokenizer, "beta gamma", 10, &ids, &count);
    ok(error);
    trafo_ids_free(ids);
  }
  ok(trafo_cancel_set(cancel));
  for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
  if (lessons[0].loss != lessons[1].loss) atomic_fetch_add(&failures, 1);  // the same bits in both
  test_one_model_for_many_threads(0);
  test_one_model_for_many_threads(1);
  trafo_cancel_free(cancel);
  trafo_tokenizer_free(tokenizer);
  trafo_corpus_free(corpus);
  printf("%d failed\n", atomic_load(&failures));
  return atomic_load(&failures) != 0;
}
