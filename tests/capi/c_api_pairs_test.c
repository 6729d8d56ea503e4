// Every pair of calls on one model, and on two with an adapter over one base, from two threads at a
// time. A call that runs no function of the program is never refused, and its result equals a lone
// call's. Calls that run such functions may be refused beside one another, and while they run,
// others may be.
#define _XOPEN_SOURCE 700
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dlpack_layout.h"
#include "tiny_config.h"
#include "trafo.h"
#include "trafo_dlpack.h"

enum { kLines = 3, kRounds = 12 };

static trafo_context* context;
static trafo_tokenizer* tokenizer;
static trafo_model *model, *adapted[2];
static const trafo_string_view kTexts[kLines] = {
    {"alpha beta gamma", 16}, {"beta gamma delta", 16}, {"gamma alpha", 11}};
static atomic_int failures;

#define MUST(call)                                                                   \
  do {                                                                               \
    trafo_error* e = (call);                                                         \
    if (e) {                                                                         \
      printf("%s:%d: %s [%s]\n", __FILE__, __LINE__, trafo_error_message(e), #call); \
      exit(1);                                                                       \
    }                                                                                \
  } while (0)

// FNV-1a.
static void mix(uint64_t* sum, const void* data, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i)
    *sum = (*sum ^ ((const unsigned char*)data)[i]) * 1099511628211u;
}

static trafo_error* mix_tensor(uint64_t* sum, trafo_tensor* tensor) {
  float values[4096];
  int64_t shape[4], count = 1;
  int32_t rank = 0;
  trafo_error* error = trafo_tensor_get_shape(tensor, shape, 4, &rank);
  for (int32_t i = 0; !error && i < rank; ++i) count *= shape[i];
  if (!error) error = trafo_tensor_read(tensor, values, (size_t)count * 4);
  if (!error) mix(sum, values, (size_t)count * 4);
  return error;
}

static trafo_error* two_tensors(trafo_error* error, trafo_tensor* a, trafo_tensor* b,
                                uint64_t* sum) {
  if (!error) error = mix_tensor(sum, a);
  if (!error) error = mix_tensor(sum, b);
  trafo_tensor_free(a);
  trafo_tensor_free(b);
  return error;
}

static trafo_error* translate(uint64_t* sum) {
  trafo_translations* translations = NULL;
  trafo_error* error = trafo_translate(model, tokenizer, kTexts, kLines, NULL, NULL, &translations);
  for (int line = 0; !error && line < kLines; ++line) {
    trafo_string_view best;
    double score = 0;
    error = trafo_translations_get(translations, (size_t)line, 0, &best, &score);
    if (!error) mix(sum, best.data, best.length);
  }
  trafo_translations_free(translations);
  return error;
}
static trafo_error* score_by(trafo_model* by, uint64_t* sum) {
  double scores[kLines];
  trafo_error* error = trafo_score(by, tokenizer, kTexts, kTexts, kLines, NULL, scores, NULL);
  if (!error) mix(sum, scores, sizeof scores);
  return error;
}
static trafo_error* score(uint64_t* sum) {
  return score_by(model, sum);
}
static trafo_error* score_first_adapter(uint64_t* sum) {
  return score_by(adapted[0], sum);
}
static trafo_error* score_second_adapter(uint64_t* sum) {
  return score_by(adapted[1], sum);
}
static int32_t hear(void* reports, int32_t work, int64_t done, int64_t total) {
  (void)work, (void)done, (void)total;
  ++*(int*)reports;
  return 0;
}
static trafo_error* score_and_tell(uint64_t* sum) {
  trafo_cancel* cancel = NULL;
  double scores[kLines];
  int reports = 0;
  MUST(trafo_cancel_new(&cancel));
  MUST(trafo_cancel_set_progress(cancel, hear, &reports, NULL));
  trafo_error* error = trafo_score(model, tokenizer, kTexts, kTexts, kLines, cancel, scores, NULL);
  trafo_cancel_free(cancel);
  if (error) return error;
  mix(sum, scores, sizeof scores);
  const int heard = reports >= 2;  // its begin and its end; those between come by the clock
  mix(sum, &heard, sizeof heard);
  return NULL;
}
static trafo_error* hidden_states(uint64_t* sum) {
  trafo_tensor *states = NULL, *bounds = NULL;
  trafo_error* error =
      trafo_model_hidden_states(model, tokenizer, kTexts, kLines, 0, &states, &bounds);
  return two_tensors(error, states, bounds, sum);
}
static trafo_error* logits(uint64_t* sum) {
  trafo_tensor *values = NULL, *labels = NULL;
  trafo_error* error =
      trafo_model_logits(model, tokenizer, kTexts, kTexts, kLines, 0, &values, &labels);
  return two_tensors(error, values, labels, sum);
}
// Recorded, so that freeing the result frees nodes of the tape.
static trafo_error* recorded_logits(uint64_t* sum) {
  trafo_tensor *values = NULL, *labels = NULL;
  trafo_error* error =
      trafo_model_logits(model, tokenizer, kTexts, kTexts, kLines, 1, &values, &labels);
  return two_tensors(error, values, labels, sum);
}
static trafo_error* parameters(uint64_t* sum) {
  int64_t tensors = 0, elements = 0;
  trafo_error* error = trafo_model_get_parameter_count(model, &tensors, &elements);
  for (int64_t i = 0; !error && i < tensors; ++i) {
    const char* name = NULL;
    trafo_tensor* parameter = NULL;
    error = trafo_model_get_parameter(model, i, &name, &parameter);
    if (!error) mix(sum, name, strlen(name));
    trafo_tensor_free(parameter);
  }
  return error;
}
static trafo_error* operations(uint64_t* sum) {
  const float values[] = {1, 2, 3, 4};
  const int64_t shape[] = {4};
  trafo_tensor *a = NULL, *b = NULL;
  trafo_error* error =
      trafo_tensor_new(context, TRAFO_FLOAT32, shape, 1, values, sizeof values, &a);
  if (!error) error = trafo_op_add(context, a, a, &b);
  return two_tensors(error, a, b, sum);
}
static void end_memory(struct DLManagedTensorVersioned* managed) {
  atomic_fetch_add((atomic_int*)managed->manager_ctx, 1);
}
static trafo_error* get_config(uint64_t* sum) {
  trafo_model_config config;
  trafo_error* error = trafo_model_get_config(model, &config, sizeof config);
  if (!error) mix(sum, &config.width, sizeof config.width);
  return error;
}

// Calls that run functions of the program.
static int32_t add_bytes(void* user_data, const uint8_t* data, size_t bytes) {
  mix(user_data, data, bytes);
  return 0;
}
static trafo_error* write_model(uint64_t* sum) {
  return trafo_model_write(model, add_bytes, sum);
}
static trafo_error* import_memory(uint64_t* sum) {
  static _Thread_local float memory[4] = {1, 2, 3, 4};
  int64_t shape[] = {4};
  atomic_int ended = 0;
  struct DLManagedTensorVersioned managed = {.major = 1,
                                             .manager_ctx = &ended,
                                             .deleter = end_memory,
                                             .data = memory,
                                             .device_type = 1,
                                             .ndim = 1,
                                             .code = 2,
                                             .bits = 32,
                                             .lanes = 1,
                                             .shape = shape};
  trafo_tensor* tensor = NULL;
  trafo_error* error = trafo_tensor_from_dlpack(context, &managed, TRAFO_COPY_NEVER, &tensor);
  if (error) return error;
  error = mix_tensor(sum, tensor);
  trafo_tensor_free(tensor);
  // Freed at the end of the other thread's call, if that was in one.
  while (atomic_load(&ended) == 0) sched_yield();
  return error;
}

static const struct call {
  const char* name;
  trafo_error* (*run)(uint64_t* sum);
  int calls_back;
} kCalls[] = {
    {"score_and_tell", score_and_tell, 1},
    {"translate", translate, 0},
    {"score", score, 0},
    {"score_first_adapter", score_first_adapter, 0},
    {"score_second_adapter", score_second_adapter, 0},
    {"hidden_states", hidden_states, 0},
    {"logits", logits, 0},
    {"recorded_logits", recorded_logits, 0},
    {"parameters", parameters, 0},
    {"operations", operations, 0},
    {"get_config", get_config, 0},
    {"write", write_model, 1},
    {"from_dlpack", import_memory, 1},
};
enum { kCallCount = sizeof kCalls / sizeof kCalls[0] };
static uint64_t alone[kCallCount];

struct side {
  int call, may_be_refused;
  int refused;
  atomic_int rounds;
  struct side* other;
  pthread_barrier_t* start;
};

static void* run_side(void* argument) {
  struct side* side = argument;
  pthread_barrier_wait(side->start);
  // The faster side goes on until the slower one is done too.
  while (atomic_fetch_add(&side->rounds, 1) < kRounds ||
         atomic_load(&side->other->rounds) < kRounds) {
    uint64_t sum = 0;
    trafo_error* error = kCalls[side->call].run(&sum);
    if (error) {
      ++side->refused;
      if (!side->may_be_refused || trafo_error_code(error) != TRAFO_INVALID_ARGUMENT) {
        if (atomic_fetch_add(&failures, 1) < 20)
          printf("%s: %s\n", kCalls[side->call].name, trafo_error_message(error));
      }
      trafo_error_free(error);
    } else if (sum != alone[side->call]) {
      if (atomic_fetch_add(&failures, 1) < 20)
        printf("%s: another result than alone\n", kCalls[side->call].name);
    }
  }
  return NULL;
}

// Models with adapters that were trained from other seeds, over one base.
static void make_adapted(const trafo_model_config* config) {
  static const char* const files[] = {"adapter_config.json", "adapter_model.safetensors"};
  trafo_model* base = NULL;
  trafo_corpus* corpus = NULL;
  MUST(trafo_corpus_new(kTexts, kTexts, kLines, &corpus));
  MUST(trafo_model_new(context, config, 2, &base));
  MUST(trafo_model_prepare_inference(base));
  for (int i = 0; i < 2; ++i) {
    char directory[] = "/tmp/trafo-c-pairs-XXXXXX", path[128];
    trafo_trainer_options options;
    trafo_trainer* trainer = NULL;
    trafo_step_result step;
    trafo_model* tuned = NULL;
    if (!mkdtemp(directory)) exit(1);
    MUST(trafo_model_new(context, config, 2, &tuned));
    MUST(trafo_model_add_adapter(tuned, 2, 4, NULL, 0, (uint64_t)i + 1));
    MUST(trafo_trainer_options_init(&options, sizeof options));
    options.warmup = 1;
    options.learning_rate = 0.05;
    options.max_length = 16;
    MUST(trafo_trainer_new(tuned, tokenizer, corpus, NULL, &options, NULL, 0, NULL, &trainer));
    for (int k = 0; k < 3; ++k) MUST(trafo_trainer_step(trainer, NULL, &step));
    trafo_trainer_free(trainer);
    MUST(trafo_model_save_adapter(tuned, directory, strlen(directory)));
    trafo_model_free(tuned);
    MUST(trafo_model_with_adapter(base, directory, strlen(directory), &adapted[i]));
    for (int k = 0; k < 2; ++k) {
      snprintf(path, sizeof path, "%s/%s", directory, files[k]);
      remove(path);
    }
    rmdir(directory);
  }
  trafo_model_free(base);
  trafo_corpus_free(corpus);
}

int main(void) {
  trafo_tokenizer_options subwords;
  trafo_model_config config;
  trafo_context_options options;
  MUST(trafo_tokenizer_options_init(&subwords, sizeof subwords));
  subwords.vocabulary = 30;
  subwords.soft_limit = 1;
  MUST(trafo_tokenizer_train(kTexts, kLines, &subwords, NULL, &tokenizer));
  MUST(trafo_context_options_init(&options, sizeof options));
  options.threads = 2;
  MUST(trafo_context_new(&options, &context));
  MUST(tiny_config(&config));
  MUST(trafo_tokenizer_get_vocabulary(tokenizer, &config.vocabulary));
  MUST(trafo_model_new(context, &config, 1, &model));
  make_adapted(&config);
  for (int call = 0; call < kCallCount; ++call) MUST(kCalls[call].run(&alone[call]));

  int refused = 0, pairs = 0;
  for (int first = 0; first < kCallCount; ++first)
    for (int second = first; second < kCallCount; ++second, ++pairs) {
      pthread_barrier_t start;
      pthread_barrier_init(&start, NULL, 2);
      const int may = kCalls[first].calls_back || kCalls[second].calls_back;
      struct side sides[2] = {{first, may, 0, 0, &sides[1], &start},
                              {second, may, 0, 0, &sides[0], &start}};
      pthread_t threads[2];
      for (int i = 0; i < 2; ++i) pthread_create(&threads[i], NULL, run_side, &sides[i]);
      for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
      pthread_barrier_destroy(&start);
      refused += sides[0].refused + sides[1].refused;
    }

  // Calls of other threads have not turned recording off: a backward reaches the parameters.
  trafo_tensor *values = NULL, *labels = NULL, *sum = NULL;
  MUST(trafo_model_logits(model, tokenizer, kTexts, kTexts, kLines, 1, &values, &labels));
  MUST(trafo_op_sum(context, values, &sum));
  MUST(trafo_backward(context, sum, NULL));
  trafo_tensor_free(values);
  trafo_tensor_free(labels);
  trafo_tensor_free(sum);
  trafo_model_free(model);
  for (int i = 0; i < 2; ++i) trafo_model_free(adapted[i]);
  trafo_context_free(context);
  trafo_tokenizer_free(tokenizer);
  printf("%d pairs, %d calls refused beside one that calls back, %d failed\n", pairs, refused,
         atomic_load(&failures));
  return atomic_load(&failures) != 0;
}
